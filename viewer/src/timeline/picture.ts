// SPDX-License-Identifier: Apache-2.0
import { filledBetween, firstAfter, unionBetween, type Timeline } from '../columns';
import { foreign, h, table } from '../dom';
import { download } from '../download';
import { bytes, timeNs } from '../format';
import type { Texts } from '../text';
import { draw, drawMinimap, hitAt, nameOf, timeAt, type Hit, type Marks, type View } from './draw';
import { layoutOf, type Layout } from './layout';
import { CanvasPainter, palette, SvgPainter, type Palette } from './painter';

const mostHeight = 620;
const shortestNs = 50;
const mapHeight = 36;

/** Where the window and the bucket that are shown are kept: the page's address, or nowhere. */
export interface Place {
  get(key: string): string | null;
  note(key: string, value: string | null): void;
}
export const nowhere: Place = { get: () => null, note: () => undefined };

/** The picture and everything one can do with it. */
export class Picture {
  readonly element: HTMLElement;
  private readonly layout: Layout;
  private readonly canvas = h('canvas', { tabindex: 0, role: 'application' });
  private readonly map = h('canvas', { class: 'minimap', 'aria-hidden': 'true' });
  private readonly scroller: HTMLElement;
  private readonly info = h('div', { class: 'info', 'aria-live': 'polite' });
  private readonly areaPlace = h('div', {});
  private readonly longest = h('div', {});
  private readonly view: View = { from: 0, to: 1, scroll: 0, width: 100, height: 100, gutter: 64 };
  private readonly marks: Marks;
  private colors: Palette = palette();
  private frame = 0;
  private hover: Hit | null = null;
  private selecting = false;
  private mapImage: HTMLCanvasElement | null = null;

  constructor(
    private readonly words: Texts,
    private readonly timeline: Timeline,
    private readonly place: Place,
  ) {
    this.layout = layoutOf(this.timeline);
    this.marks = { selected: null, bucket: null, area: null, rankWord: words.rank };
    this.canvas.setAttribute('aria-label', `${words.timelineLabel(this.timeline.ranks.length, this.timeline.bars.toLocaleString('en'))}. ${words.timelineHelp}`);
    const spacer = h('div', { class: 'spacer' });
    spacer.style.setProperty('height', `${this.layout.height + 24}px`);
    this.scroller = h('div', { class: 'picture' }, this.canvas, spacer);
    this.view.height = Math.min(mostHeight, this.layout.height + 24);
    this.scroller.style.setProperty('height', `${this.view.height}px`);
    spacer.style.setProperty('margin-top', `${-this.view.height}px`);
    this.startWindow();
    this.element = h(
      'div',
      {},
      this.toolbar(),
      h('p', { class: 'aside' }, words.timelineHelp),
      this.scroller,
      this.map,
      this.legend(),
      this.info,
      this.areaPlace,
      h('details', { ontoggle: () => this.showLongest() }, h('summary', {}, words.longest), this.longest),
    );
    this.listen();
    this.showInfo();
  }

  /** Where the address says, else the first steps, else all. */
  private startWindow(): void {
    const { packed, length } = this.timeline;
    const [from, to] = (this.place.get('t') ?? '').split('-').map((part) => Number(part) * 1e6);
    const bucket = this.place.get('b');
    this.view.from = 0;
    this.view.to = length;
    const middle = packed.steps[Math.floor(packed.steps.length / 2)];
    if (from !== undefined && to !== undefined && to > from && from >= 0) {
      this.view.from = from;
      this.view.to = Math.min(to, length);
    } else if (middle !== undefined && middle.end_ns > middle.begin_ns) {
      const margin = (middle.end_ns - middle.begin_ns) * 0.03;
      this.setWindow(middle.begin_ns - margin, middle.end_ns + margin);
    }
    if (bucket !== null && middle !== undefined) {
      this.marks.bucket = { bucket: Number(bucket), step: middle.step };
    }
  }

  private setWindow(from: number, to: number): void {
    const { length } = this.timeline;
    const span = Math.min(length, Math.max(shortestNs, to - from));
    this.view.from = Math.min(Math.max(0, from), length - span);
    this.view.to = this.view.from + span;
  }

  private moved(): void {
    this.place.note('t', `${(this.view.from / 1e6).toFixed(4)}-${(this.view.to / 1e6).toFixed(4)}`);
    this.redraw();
    this.showLongest();
  }

  private zoom(factor: number, around = (this.view.from + this.view.to) / 2): void {
    this.setWindow(around - (around - this.view.from) * factor, around + (this.view.to - around) * factor);
    this.moved();
  }

  private pan(share: number): void {
    const by = share * (this.view.to - this.view.from);
    this.setWindow(this.view.from + by, this.view.to + by);
    this.moved();
  }

  private toolbar(): HTMLElement {
    const { words } = this;
    const button = (text: string, act: () => void): HTMLButtonElement => h('button', { type: 'button', onclick: act }, text);
    const steps = h('select', { 'aria-label': words.goToStep });
    steps.append(h('option', { value: '' }, words.goToStep), h('option', { value: 'all' }, words.wholeRecording));
    this.timeline.packed.steps.slice(0, 500).forEach((step, i) => {
      const name = step.name === 'step' ? `${step.name} ${step.step}` : step.name;
      steps.append(h('option', { value: i }, `${name.slice(0, 40)} (${timeNs(step.end_ns - step.begin_ns)})`));
    });
    steps.addEventListener('change', () => {
      const step = this.timeline.packed.steps[Number(steps.value)];
      if (steps.value === 'all') {
        this.setWindow(0, this.timeline.length);
      } else if (steps.value !== '' && step !== undefined) {
        this.setWindow(step.begin_ns, step.end_ns);
      }
      this.moved();
    });
    const select = button(words.select, () => {
      this.selecting = !this.selecting;
      select.setAttribute('aria-pressed', String(this.selecting));
      this.canvas.classList.toggle('selecting', this.selecting);
    });
    select.setAttribute('aria-pressed', 'false');
    return h(
      'div',
      { class: 'buttons', role: 'toolbar', 'aria-label': words.pages.timeline },
      button(words.fit, () => { this.setWindow(0, this.timeline.length); this.moved(); }),
      button(words.zoomIn, () => this.zoom(0.5)),
      button(words.zoomOut, () => this.zoom(2)),
      select,
      steps,
      button(words.savePng, () => this.savePng()),
      button(words.saveSvg, () => this.saveSvg()),
    );
  }

  private legend(): HTMLElement {
    const { words } = this;
    const used = new Set(this.timeline.packed.kinds.map(([kind]) => kind));
    const items = Object.entries(words.kinds)
      .filter(([kind]) => used.has(kind))
      .map(([kind, text]) => h('li', {}, h('span', { class: `swatch ${kind === 'communication' ? 'hidden' : kind}`, 'aria-hidden': 'true' }), text));
    items.push(h('li', {}, h('span', { class: 'swatch exposed', 'aria-hidden': 'true' }), words.parts.exposed));
    return h('ul', { class: 'legend' }, ...items);
  }

  // ---- drawing -----------------------------------------------------------------------------------

  redraw(): void {
    if (this.frame === 0) {
      this.frame = requestAnimationFrame(() => {
        this.frame = 0;
        this.paint();
      });
    }
  }

  private paint(): void {
    const { view, canvas } = this;
    const ratio = devicePixelRatio || 1;
    view.width = Math.max(160, this.scroller.clientWidth);
    view.gutter = view.width < 500 ? 46 : 64;
    view.scroll = this.scroller.scrollTop;
    const context = sized(canvas, view.width, view.height, ratio);
    draw(new CanvasPainter(context, this.colors), this.timeline, this.layout, view, this.marks, this.colors);
    this.paintMap(ratio);
  }

  /** What does not change is drawn once. */
  private paintMap(ratio: number): void {
    const { view, map } = this;
    const whole = { ...view, height: mapHeight };
    if (this.mapImage === null || this.mapImage.width !== Math.round(view.width * ratio)) {
      this.mapImage = document.createElement('canvas');
      drawMinimap(new CanvasPainter(sized(this.mapImage, view.width, mapHeight, ratio), this.colors), this.timeline, whole, this.colors);
    }
    const context = sized(map, view.width, mapHeight, ratio);
    context.drawImage(this.mapImage, 0, 0, view.width, mapHeight);
    const x = (view.from / this.timeline.length) * view.width;
    const width = Math.max(3, ((view.to - view.from) / this.timeline.length) * view.width);
    context.globalAlpha = 0.15;
    context.fillStyle = this.colors.text;
    context.fillRect(x, 0, width, mapHeight);
    context.globalAlpha = 1;
    context.strokeStyle = this.colors.text;
    context.strokeRect(x + 0.5, 0.5, Math.max(2, width - 1), mapHeight - 1);
  }

  private savePng(): void {
    this.canvas.toBlob((blob) => {
      if (blob !== null) {
        download('timeline.png', blob);
      }
    });
  }

  /** All ranks, in the window that is shown. */
  private saveSvg(): void {
    const view = { ...this.view, scroll: 0, height: this.layout.height + 24 };
    const painter = new SvgPainter(view.width, view.height, this.colors);
    draw(painter, this.timeline, this.layout, view, this.marks, this.colors);
    download('timeline.svg', painter.file(), 'image/svg+xml');
  }

  // ---- what is pointed at ------------------------------------------------------------------------

  private showInfo(): void {
    const { words } = this;
    const hit = this.marks.selected ?? this.hover;
    if (hit === null) {
      this.info.replaceChildren(h('p', { class: 'aside' }, words.noDetails));
      return;
    }
    const { row, rank } = hit.lane;
    const i = hit.index;
    const [kind, , collective] = this.timeline.packed.kinds[row.what[i]!] ?? ['compute', 0, 'none'];
    const facts = [
      `${words.rank} ${rank.rank}`,
      collective !== 'none' ? collective : (words.kinds[kind] ?? kind),
      `${words.begins} ${timeNs(row.begin[i]!)}`,
      `${words.lasts} ${timeNs(row.end[i]! - row.begin[i]!)}`,
    ];
    if (row.band === 'communication') {
      if (row.bytes[i]! > 0) {
        facts.push(`${words.size} ${bytes(row.bytes[i]!)}`);
      }
      if (row.bucket[i]! >= 0) {
        facts.push(`${words.bucket} ${row.bucket[i]}`);
      }
      if (row.ready[i]! >= 0) {
        facts.push(words.readyBefore(timeNs(row.begin[i]! - row.ready[i]!)));
      }
      if (row.launched[i]! >= 0) {
        facts.push(words.launchedBefore(timeNs(row.begin[i]! - row.launched[i]!)));
      }
    }
    if (row.records[i]! > 1) {
      facts.push(words.standsFor(row.records[i]!));
    }
    this.info.replaceChildren(h('p', {}, h('strong', {}, foreign(nameOf(this.timeline, row, i))), ` · ${facts.join(' · ')}`));
  }

  private choose(hit: Hit | null): void {
    this.marks.selected = hit;
    this.marks.bucket = null;
    if (hit !== null && hit.lane.row.band === 'communication' && hit.lane.row.bucket[hit.index]! >= 0) {
      this.marks.bucket = { bucket: hit.lane.row.bucket[hit.index]!, step: hit.lane.row.step[hit.index]! };
    }
    this.showInfo();
    this.redraw();
  }

  /** The next communication of the rank that is selected, by begin; of the first rank if none is. */
  private chooseNext(direction: 1 | -1, otherRank = 0): void {
    const blocks = this.layout.blocks;
    const at = this.marks.selected;
    const now = at === null ? 0 : blocks.findIndex((block) => block.rank === at.lane.rank);
    const block = blocks[Math.min(blocks.length - 1, Math.max(0, now + otherRank))];
    if (block === undefined) {
      return;
    }
    const calls = block.lanes.filter((lane) => lane.row.band === 'communication');
    const lanes = calls.length > 0 ? calls : block.lanes;
    const from = at === null ? this.view.from : at.lane.row.begin[at.index]!;
    let best: Hit | null = null;
    let bestBegin = direction > 0 ? Infinity : -Infinity;
    for (const lane of lanes) {
      const near = firstAfter(lane.row, from);
      for (let index = Math.max(0, near - 2); index < Math.min(lane.row.count, near + 3); index++) {
        const begin = lane.row.begin[index]!;
        const beyond = direction > 0 ? begin > from || (otherRank !== 0 && begin >= from) : begin < from;
        const nearer = direction > 0 ? begin < bestBegin : begin > bestBegin;
        if (beyond && nearer) {
          best = { lane, index };
          bestBegin = begin;
        }
      }
    }
    if (best === null) {
      return;
    }
    const end = best.lane.row.end[best.index]!;
    if (bestBegin < this.view.from || end > this.view.to) {
      const span = Math.max(this.view.to - this.view.from, (end - bestBegin) * 1.5);
      const middle = (bestBegin + end) / 2;
      this.setWindow(middle - span / 2, middle + span / 2);
    }
    if (block.top < this.scroller.scrollTop || block.top + block.height > this.scroller.scrollTop + this.view.height) {
      this.scroller.scrollTop = block.top;
    }
    this.choose(best);
  }

  private setArea(from: number, to: number): void {
    const { words } = this;
    const area = { from: Math.max(0, Math.min(from, to)), to: Math.min(this.timeline.length, Math.max(from, to)) };
    this.marks.area = area;
    const rows = this.timeline.ranks.map((rank) => {
      const of = (band: string): number =>
        unionBetween(rank.rows.filter((row) => row.band === band), area.from, area.to);
      const exposed = filledBetween(rank.exposed, area.from, area.to);
      const compute = of('compute');
      return [
        String(rank.rank),
        timeNs(compute),
        timeNs(of('communication')),
        timeNs(exposed),
        timeNs(Math.max(0, area.to - area.from - compute - exposed)),
      ];
    });
    const title = words.area(timeNs(area.to - area.from));
    this.areaPlace.replaceChildren(h('h2', {}, title), table(title, words.areaColumns, rows));
    this.redraw();
  }

  private clear(): void {
    this.marks.area = null;
    this.areaPlace.replaceChildren();
    this.choose(null);
  }

  /** The canvas in words: what is longest of what it shows. */
  private showLongest(): void {
    const details = this.longest.parentElement as HTMLDetailsElement | null;
    if (details === null || !details.open) {
      return;
    }
    const { words } = this;
    const most = 25;
    const found: Hit[] = [];
    const length = (hit: Hit): number => hit.lane.row.end[hit.index]! - hit.lane.row.begin[hit.index]!;
    for (const block of this.layout.blocks) {
      for (const lane of block.lanes) {
        for (let i = firstAfter(lane.row, this.view.from); i < lane.row.count && lane.row.begin[i]! < this.view.to; i++) {
          const shortest = found.length < most ? undefined : found[most - 1];
          const hit = { lane, index: i };
          if (shortest === undefined || length(hit) > length(shortest)) {
            found.push(hit);
            found.sort((a, b) => length(b) - length(a));
            found.length = Math.min(found.length, most);
          }
        }
      }
    }
    this.longest.replaceChildren(
      table(
        words.longest,
        words.longestColumns,
        found.map((hit) => [
          h('button', { type: 'button', class: 'link', onclick: () => this.choose(hit) }, foreign(nameOf(this.timeline, hit.lane.row, hit.index).slice(0, 120))),
          String(hit.lane.rank.rank),
          timeNs(hit.lane.row.begin[hit.index]!),
          timeNs(length(hit)),
        ]),
      ),
    );
  }

  // ---- hands -------------------------------------------------------------------------------------

  private listen(): void {
    const { canvas, view } = this;
    let drag: { x: number; from: number; to: number; at: number; area: boolean; moved: boolean; y: number; scroll: number } | null = null;
    canvas.addEventListener('pointerdown', (event) => {
      canvas.focus({ preventScroll: true });
      canvas.setPointerCapture(event.pointerId);
      const area = event.shiftKey || this.selecting;
      drag = { x: event.offsetX, from: view.from, to: view.to, at: timeAt(view, event.offsetX), area, moved: false, y: event.offsetY, scroll: this.scroller.scrollTop };
    });
    canvas.addEventListener('pointermove', (event) => {
      if (drag === null) {
        const hit = hitAt(this.layout, view, event.offsetX, event.offsetY);
        if (hit?.index !== this.hover?.index || hit?.lane !== this.hover?.lane) {
          this.hover = hit;
          canvas.classList.toggle('pointing', hit !== null);
          this.showInfo();
        }
        return;
      }
      drag.moved ||= Math.abs(event.offsetX - drag.x) + Math.abs(event.offsetY - drag.y) > 3;
      if (!drag.moved) {
        return;
      }
      if (drag.area) {
        this.setArea(drag.at, timeAt(view, event.offsetX));
        return;
      }
      const by = ((drag.x - event.offsetX) / (view.width - view.gutter)) * (drag.to - drag.from);
      this.setWindow(drag.from + by, drag.to + by);
      this.scroller.scrollTop = drag.scroll + drag.y - event.offsetY;
      this.moved();
    });
    canvas.addEventListener('pointerup', (event) => {
      if (drag !== null && !drag.moved) {
        this.choose(hitAt(this.layout, view, event.offsetX, event.offsetY));
      }
      drag = null;
    });
    canvas.addEventListener('pointercancel', () => {
      drag = null;
    });
    canvas.addEventListener('dblclick', (event) => this.zoom(0.4, timeAt(view, event.offsetX)));
    canvas.addEventListener(
      'wheel',
      (event) => {
        const focused = document.activeElement === canvas;
        if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
          event.preventDefault();
          this.pan((event.deltaX || event.deltaY) / view.width);
        } else if (focused || event.ctrlKey || event.metaKey) {
          event.preventDefault();
          this.zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 300))), timeAt(view, event.offsetX));
        }
      },
      { passive: false },
    );
    canvas.addEventListener('keydown', (event) => this.key(event));
    this.scroller.addEventListener('scroll', () => this.redraw());
    this.map.addEventListener('pointerdown', (event) => {
      this.map.setPointerCapture(event.pointerId);
      this.centre(event.offsetX);
    });
    this.map.addEventListener('pointermove', (event) => {
      if (event.buttons > 0) {
        this.centre(event.offsetX);
      }
    });
    const theme = (): void => {
      this.colors = palette();
      this.mapImage = null;
      this.redraw();
    };
    const observer = new ResizeObserver(() => this.redraw());
    observer.observe(this.scroller);
    const dark = matchMedia('(prefers-color-scheme: dark)');
    dark.addEventListener('change', theme);
    const changed = (): void => {
      if (this.element.isConnected) {
        theme();
      } else {
        removeEventListener('stretto-theme', changed);
        dark.removeEventListener('change', theme);
        observer.disconnect();
      }
    };
    addEventListener('stretto-theme', changed);
  }

  private centre(x: number): void {
    const middle = (x / this.view.width) * this.timeline.length;
    const half = (this.view.to - this.view.from) / 2;
    this.setWindow(middle - half, middle + half);
    this.moved();
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) {
      return;
    }
    const step = event.shiftKey ? 0.5 : 0.1;
    const page = this.view.height * 0.8;
    const actions: Record<string, () => void> = {
      arrowleft: () => this.pan(-step),
      a: () => this.pan(-step),
      arrowright: () => this.pan(step),
      d: () => this.pan(step),
      '+': () => this.zoom(0.7),
      '=': () => this.zoom(0.7),
      w: () => this.zoom(0.7),
      '-': () => this.zoom(1.4),
      s: () => this.zoom(1.4),
      f: () => { this.setWindow(0, this.timeline.length); this.moved(); },
      home: () => { this.setWindow(0, this.timeline.length); this.moved(); },
      m: () => this.setArea(this.view.from, this.view.to),
      n: () => this.chooseNext(1),
      p: () => this.chooseNext(-1),
      arrowdown: () => this.chooseNext(1, 1),
      arrowup: () => this.chooseNext(1, -1),
      pagedown: () => { this.scroller.scrollTop += page; },
      pageup: () => { this.scroller.scrollTop -= page; },
      escape: () => this.clear(),
    };
    const action = actions[event.key.toLowerCase()];
    if (action !== undefined) {
      event.preventDefault();
      action();
    }
  }
}

/** The canvas' context, in pixels of the page. */
function sized(canvas: HTMLCanvasElement, width: number, height: number, ratio: number): CanvasRenderingContext2D {
  const wide = Math.round(width * ratio);
  const high = Math.round(height * ratio);
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
    canvas.style.setProperty('width', `${width}px`);
    canvas.style.setProperty('height', `${height}px`);
  }
  const context = canvas.getContext('2d')!;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}
