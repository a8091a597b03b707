// SPDX-License-Identifier: Apache-2.0
import type { Diagnosis, RankNumbers, Run, Summary } from '../data';
import { command, foreign, h, table } from '../dom';
import { or, percent, time } from '../format';
import type { State } from '../state';
import type { Texts } from '../text';

const mostRanks = 8;

export interface Parts {
  compute: number;
  hidden: number;
  exposed: number;
  idle: number;
}

/** What a rank's step is made of; the parts sum to the step. */
export function partsOf(rank: RankNumbers): Parts {
  const hidden = Math.max(0, rank.communication_s - rank.exposed_s);
  return {
    compute: Math.max(0, rank.compute_s - hidden),
    hidden,
    exposed: rank.exposed_s,
    idle: Math.max(0, rank.step_s - rank.compute_s - rank.exposed_s),
  };
}

export const partNames = ['compute', 'hidden', 'exposed', 'idle'] as const;

export function legend(words: Texts): HTMLElement {
  return h(
    'ul',
    { class: 'legend' },
    ...partNames.map((part) => h('li', {}, h('span', { class: `swatch ${part}`, 'aria-hidden': 'true' }), words.parts[part])),
  );
}

/** One bar per rank, on one scale: the longest step fills the width. */
export function partBars(ranks: RankNumbers[], words: Texts): HTMLElement {
  const longest = Math.max(...ranks.map((rank) => rank.step_s), 1e-12);
  const list = h('ul', { class: 'bars' });
  for (const rank of ranks) {
    const parts = partsOf(rank);
    const bar = h('span', { class: 'parts', 'aria-hidden': 'true' });
    for (const name of partNames) {
      const piece = h('span', { class: name });
      piece.style.setProperty('width', `${(100 * parts[name]) / longest}%`);
      bar.append(piece);
    }
    const said = partNames.map((name) => `${words.parts[name]} ${time(parts[name])}`).join(', ');
    list.append(
      h(
        'li',
        { title: said },
        h('span', { class: 'who' }, words.partsOfRank(rank.rank)),
        bar,
        h('span', { class: 'value' }, time(rank.step_s), h('span', { class: 'aside' }, ` (${time(rank.exposed_s)})`)),
        h('span', { class: 'unseen' }, `: ${said}`),
      ),
    );
  }
  return list;
}

function headline(run: Run, words: Texts): string {
  const summary = run.explanation.summary;
  if (!run.has_communication) {
    return words.headlineNone;
  }
  if (summary === null || summary.exposed_s === null) {
    return run.explanation.verdict;
  }
  if (!run.steps_marked) {
    return words.headlineWhole(time(summary.exposed_s), time(summary.step_s));
  }
  return summary.exposed_s === 0
    ? words.headlineHidden(time(summary.step_s))
    : words.headline(time(summary.exposed_s), time(summary.step_s));
}

function sentence(run: Run, words: Texts): string {
  const { summary, certificate, least_exposed_s: least, host_only: hostOnly } = run.explanation;
  const parts: string[] = [];
  if (certificate !== null && certificate.recoverable_s > 0) {
    parts.push(words.couldSave(time(certificate.recoverable_s)));
  } else if (least !== null && least > 0 && summary?.exposed_s) {
    parts.push(words.unavoidable(time(Math.min(least, summary.exposed_s))));
  }
  if (summary !== null) {
    parts.push(words.basis(summary.steps, summary.ranks));
  }
  if (hostOnly) {
    parts.push(words.hostOnly);
  }
  return parts.join(' ');
}

function numbers(summary: Summary, words: Texts): HTMLElement {
  const cards: [string, string, string, string?][] = [
    [words.exposed, or(summary.exposed_s, time), words.exposedFormula, 'strong'],
    [words.step, time(summary.step_s), words.spread(time(summary.step_p10_s), time(summary.step_p90_s))],
    [words.hiddenRatio, or(summary.hidden_ratio, percent), words.hiddenFormula],
    [words.overlapDegree, or(summary.overlap_degree, percent), words.overlapFormula],
    [
      words.bound,
      or(summary.bound_s, time),
      summary.bound_gap_ratio === null ? words.boundNone : words.boundFormula(percent(summary.bound_gap_ratio)),
    ],
    [words.communicationShare, or(summary.communication_ratio, percent), words.communicationFormula],
  ];
  return h(
    'dl',
    { class: 'cards' },
    ...cards.map(([name, value, formula, kind]) =>
      h('div', { class: kind ?? null }, h('dt', {}, name), h('dd', {}, value, h('small', {}, formula))),
    ),
  );
}

function actionOf(diagnosis: Diagnosis, words: Texts): HTMLElement {
  const title = words.diagnoses[diagnosis.id];
  const badge = diagnosis.weight === 'first' ? words.first : diagnosis.weight === 'note' ? words.note : null;
  const english = title === undefined ? null : 'en';
  return h(
    'li',
    { class: diagnosis.weight },
    h(
      'h3',
      {},
      title === undefined ? foreign(diagnosis.finding) : title,
      badge === null ? null : h('span', { class: 'badge' }, badge),
    ),
    title === undefined ? null : h('p', { class: 'aside' }, words.inEnglish),
    title === undefined ? null : h('p', { lang: 'en' }, foreign(diagnosis.finding)),
    diagnosis.advice === '' ? null : h('p', { lang: english, class: 'advice' }, foreign(diagnosis.advice)),
    h('p', { lang: english, class: 'aside' }, foreign(diagnosis.evidence), ` (${words.rule}: `, foreign(diagnosis.threshold), ')'),
  );
}

function actions(run: Run, state: State): HTMLElement {
  const words = state.texts;
  const { certificate, diagnoses } = run.explanation;
  const list = h('ol', { class: 'actions' });
  if (certificate !== null && certificate.recoverable_s > 0 && certificate.settings !== '') {
    list.append(
      h(
        'li',
        { class: 'first' },
        h('h3', {}, words.rebucket),
        h('p', {}, words.rebucketText(time(certificate.recoverable_s))),
        h('p', { class: 'aside' }, words.settings),
        command(certificate.settings.trimEnd(), words.copy, words.copied),
        h('p', { class: 'aside', lang: 'en' }, foreign(certificate.assumptions)),
      ),
    );
  }
  const order = ['first', 'cause', 'note'];
  const sorted = [...diagnoses].sort((a, b) => order.indexOf(a.weight) - order.indexOf(b.weight));
  list.append(...sorted.map((diagnosis) => actionOf(diagnosis, words)));
  const section = h('section', {}, h('h2', {}, words.actions));
  section.append(list.childElementCount > 0 ? list : h('p', {}, words.noActions));
  const next = certificate !== null ? 'plan' : 'analyze';
  if (!state.report.redacted && run.files.length > 0 && run.files.length <= 4) {
    const files = run.files.map((file) => (/^[\w./@%+=:-]+$/.test(file) ? file : `'${file.replaceAll("'", "'\\''")}'`));
    section.append(
      h('p', {}, words.goOn),
      command(`stretto ${next} ${files.join(' ')}${next === 'analyze' ? ' --per bucket' : ''}`, words.copy, words.copied),
    );
  }
  return section;
}

function comparison(state: State): HTMLElement | null {
  const words = state.texts;
  const all = [
    ...state.report.runs.map((run) => ({ name: run.name, summary: run.explanation.summary })),
    ...state.report.summaries,
  ];
  if (all.length < 2 && state.report.summaries.length === 0) {
    return null;
  }
  return h(
    'section',
    {},
    h('h2', {}, words.compareRuns),
    table(
      words.compareRuns,
      [words.run, words.step, words.exposed, words.hiddenRatio, words.overlapDegree, words.bound],
      all.map(({ name, summary }) => [
        foreign(name),
        or(summary?.step_s, time),
        or(summary?.exposed_s, time),
        or(summary?.hidden_ratio, percent),
        or(summary?.overlap_degree, percent),
        or(summary?.bound_s, time),
      ]),
    ),
  );
}

function provenance(run: Run | undefined, state: State): HTMLElement {
  const words = state.texts;
  const section = h('section', { class: 'provenance' }, h('h2', {}, words.provenance));
  if (state.report.redacted) {
    section.append(h('p', {}, words.redacted));
  }
  if (run !== undefined && run.files.length > 0) {
    const shown = run.files.slice(0, 4);
    section.append(
      h('p', { class: 'aside' }, `${words.files}: `, ...shown.flatMap((file, i) => [i > 0 ? ', ' : '', foreign(file)]),
        run.files.length > shown.length ? ` ${words.andMore(run.files.length - shown.length)}` : ''),
    );
  }
  if (state.report.command !== '') {
    section.append(h('p', {}, words.made), command(state.report.command, words.copy, words.copied));
  }
  section.append(h('p', { class: 'aside' }, `Stretto ${state.report.version}`));
  return section;
}

export function overviewPage(state: State): HTMLElement {
  const words = state.texts;
  const { run } = state;
  const page = h('article', { class: 'overview' });
  if (run === undefined) {
    page.append(h('h1', {}, words.onlySummaries));
  } else {
    page.append(h('h1', {}, headline(run, words)), h('p', { class: 'lead' }, sentence(run, words)));
    const { summary } = run.explanation;
    if (summary !== null && run.has_communication) {
      page.append(numbers(summary, words));
    }
    if (summary !== null && summary.per_rank.length > 0) {
      page.append(
        h(
          'section',
          {},
          h('h2', {}, words.whereTimeGoes),
          legend(words),
          partBars(summary.per_rank.slice(0, mostRanks), words),
          summary.steps > 1 ? h('p', { class: 'aside' }, words.partsNote) : null,
          summary.per_rank.length > mostRanks
            ? h('p', {}, h('a', { href: state.link('ranks') }, words.moreRanks(summary.per_rank.length - mostRanks)))
            : null,
        ),
      );
    }
    page.append(actions(run, state));
  }
  const others = comparison(state);
  if (others !== null) {
    page.append(others);
  }
  page.append(provenance(run, state));
  return page;
}
