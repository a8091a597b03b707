// SPDX-License-Identifier: Apache-2.0
import './style.css';
import { NoReport, parseReport, type Report } from './data';
import { append, h } from './dom';
import { bucketsPage } from './pages/buckets';
import { dataPage } from './pages/data';
import { learnPage } from './pages/learn';
import { machinePage } from './pages/machine';
import { overviewPage } from './pages/overview';
import { ranksPage } from './pages/ranks';
import { timelinePage } from './pages/timeline';
import { whatIfPage } from './pages/whatif';
import { State, type PageName } from './state';
import { texts, type Texts } from './text';

const pages: Record<PageName, (state: State) => HTMLElement> = {
  overview: overviewPage,
  timeline: timelinePage,
  buckets: bucketsPage,
  ranks: ranksPage,
  whatif: whatIfPage,
  machine: machinePage,
  learn: learnPage,
  data: dataPage,
};

const still = document.getElementById('still')!;
const app = document.getElementById('app')!;

/** From disk the storage may be closed. */
function stored(key: string, value?: string): string | null {
  try {
    if (value !== undefined) {
      localStorage.setItem(key, value);
    }
    return localStorage.getItem(key);
  } catch {
    return value ?? null;
  }
}

function setTheme(theme: string): void {
  if (theme === 'auto') {
    document.documentElement.removeAttribute('data-theme');
  } else {
    document.documentElement.setAttribute('data-theme', theme);
  }
}

function chooser(label: string, options: [string, string][], value: string, change: (value: string) => void): HTMLElement {
  const select = h('select', { 'aria-label': label });
  for (const [key, text] of options) {
    select.append(h('option', { value: key, selected: key === value }, text));
  }
  select.addEventListener('change', () => change(select.value));
  return select;
}

/** Why the data cannot be shown, above what stands in the file anyway. */
function showBroken(message: string): void {
  still.hidden = false;
  still.prepend(h('p', { class: 'alert', role: 'alert' }, message));
}

function showMessage(message: string): void {
  document.querySelector('.toast')?.remove();
  document.body.append(h('p', { class: 'toast', role: 'alert' }, message));
}

class App {
  private readonly state: State;
  private language: string;

  constructor(report: Report) {
    const wanted = new URLSearchParams(location.hash.slice(1)).get('lang') ?? stored('stretto.language');
    this.language = texts[wanted ?? ''] !== undefined ? wanted! : report.language in texts ? report.language : 'en';
    this.state = new State(report, texts[this.language]!);
  }

  render(): void {
    const { state } = this;
    const words: Texts = state.texts;
    document.documentElement.lang = this.language === 'zh' ? 'zh-Hans' : 'en';
    document.title = `${words.pages[state.page]} – Stretto`;
    const main = h('main', { id: 'content', tabindex: -1 });
    app.replaceChildren();
    append(app, [h('a', { class: 'skip', href: '#content', onclick: (event: Event) => this.skip(event, main) }, words.skip), this.header(), main]);
    try {
      main.append(pages[state.page](state));
    } catch (error) {
      main.append(h('p', { class: 'alert', role: 'alert' }, words.pageFailed(String(error))));
    }
    still.hidden = true;
    app.hidden = false;
  }

  /** The address is the page's state, so a link must not change it. */
  private skip(event: Event, main: HTMLElement): void {
    event.preventDefault();
    main.focus();
  }

  private header(): HTMLElement {
    const { state } = this;
    const words = state.texts;
    const links = state.pages.map((page) =>
      h('a', { href: state.link(page), 'aria-current': page === state.page ? 'page' : null }, words.pages[page]),
    );
    const choices = h('div', { class: 'choices' });
    if (state.report.runs.length > 1) {
      choices.append(
        chooser(
          words.run,
          state.report.runs.map((run, i) => [String(i), run.name]),
          String(state.runIndex),
          (value) => {
            location.hash = new URLSearchParams({ p: state.page, run: value }).toString();
          },
        ),
      );
    }
    choices.append(
      chooser(words.language, Object.entries(texts).map(([key, text]) => [key, text.name]), this.language, (value) => {
        stored('stretto.language', value);
        this.language = value;
        state.texts = texts[value]!;
        this.render();
        app.querySelector<HTMLElement>(`select[aria-label="${state.texts.language}"]`)?.focus();
      }),
      chooser(words.theme, Object.entries(words.themes), stored('stretto.theme') ?? 'auto', (value) => {
        stored('stretto.theme', value);
        setTheme(value);
        dispatchEvent(new Event('stretto-theme'));
      }),
    );
    return h(
      'header',
      {},
      h('div', { class: 'bar' }, h('span', { class: 'brand' }, 'Stretto'), choices),
      h('nav', { 'aria-label': 'Stretto' }, ...links),
    );
  }

  follow(): void {
    this.state.read();
    this.render();
    window.scrollTo(0, 0);
  }
}

let current: App | undefined;

function open(text: string): void {
  const report = parseReport(text);
  current = new App(report);
  current.render();
}

const language = document.documentElement.lang.startsWith('zh') ? 'zh' : 'en';
setTheme(stored('stretto.theme') ?? 'auto');
addEventListener('hashchange', () => current?.follow());
addEventListener('dragover', (event) => event.preventDefault());
addEventListener('drop', (event) => {
  event.preventDefault();
  const file = event.dataTransfer?.files[0];
  file?.text().then((text) => {
    try {
      open(text);
    } catch (error) {
      const why = error instanceof NoReport ? error.message : String(error);
      showMessage(texts[document.documentElement.lang.startsWith('zh') ? 'zh' : 'en']!.foreignFile(file.name, why.slice(0, 200)));
    }
  });
});
try {
  open(document.getElementById('data')?.textContent ?? '');
} catch (error) {
  showBroken(texts[language]!.broken((error instanceof Error ? error.message : String(error)).slice(0, 200)));
}
