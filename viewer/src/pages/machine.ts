// SPDX-License-Identifier: Apache-2.0
import type { Machine, MachineCurve } from '../data';
import { foreign, h, table, type Cell } from '../dom';
import { bytes, percent, rate, time } from '../format';
import type { State } from '../state';
import { svg } from '../svg';
import type { Texts } from '../text';

const mostRanks = 64;
const width = 960;

/** What each rank's link carries of a tensor, as NCCL tests define it. */
function busFactor(collective: string, ranks: number): number {
  switch (collective) {
    case 'all_reduce':
      return (2 * (ranks - 1)) / ranks;
    case 'reduce_scatter':
    case 'all_gather':
    case 'all_to_all':
      return (ranks - 1) / ranks;
    default:
      return 1;
  }
}

const busBandwidths = (curve: MachineCurve): number[] =>
  curve.size_bytes.map((size, i) => (busFactor(curve.collective, curve.ranks) * size) / curve.time_s[i]!);

const ranksOf = (machine: Machine): number => machine.levels.reduce((product, level) => product * level.group_size, 1);

/** Ranks in a row; above them a bracket for every group of every level, innermost lowest. */
function tree(machine: Machine, words: Texts['machine']): HTMLElement[] {
  const ranks = ranksOf(machine);
  const drawn = Math.min(ranks, mostRanks);
  const step = width / drawn;
  const row = 34;
  const height = row * (machine.levels.length + 1) + 8;
  const said = [...machine.levels].reverse().map((level) => words.groups(level.group_size, level.name)).join(', ');
  const figure = svg('svg', { class: 'machine-tree', viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': words.treeSaid(said) });
  const bottom = height - 16;
  for (let rank = 0; rank < drawn; rank++) {
    const circle = svg('circle', { class: 'member', cx: (rank + 0.5) * step, cy: bottom, r: Math.min(7, step / 3) });
    const title = svg('title', {});
    title.textContent = `${words.rank} ${rank}`;
    circle.append(title);
    figure.append(circle);
  }
  let inside = 1;
  machine.levels.forEach((level, i) => {
    const size = inside * level.group_size;
    const y = bottom - row * (i + 1) + 8;
    for (let first = 0; first < drawn; first += size) {
      const from = (first + 0.5) * step;
      const to = (Math.min(first + size, drawn) - 0.5) * step;
      figure.append(svg('path', { class: `link level${i % 3}`, d: `M${from.toFixed(1)} ${y + 8}V${y}H${to.toFixed(1)}V${y + 8}` }));
    }
    const label = svg('text', { x: 4, y: y - 4 });
    label.textContent = `${level.name}: ${time(level.latency_s)}, ${rate(level.bandwidth_bytes_per_s)}`;
    figure.append(label);
    inside = size;
  });
  return [
    h(
      'figure',
      {},
      h('figcaption', {}, words.tree),
      h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': words.tree }, figure as unknown as HTMLElement),
    ),
    ...(ranks > drawn ? [h('p', { class: 'aside' }, words.ranksNotDrawn(ranks - drawn))] : []),
  ];
}

/** Color and dashes of one line of many: all algorithms are eleven, so four colors alone would repeat. */
const look = (i: number): string => `curve series${i % 4} dash${Math.floor(i / 4) % 4}`;

/** A piece of that very line, for the legend. */
function key(i: number): HTMLElement {
  const figure = svg('svg', { class: 'key', viewBox: '0 0 48 8', 'aria-hidden': 'true' });
  figure.append(svg('line', { class: look(i), x1: 2, y1: 4, x2: 46, y2: 4 }));
  return figure as unknown as HTMLElement;
}

/** Bus bandwidth over size; sizes are drawn by their logarithm. */
function curves(list: MachineCurve[], words: Texts['machine']): HTMLElement {
  const [left, top, chartWidth, chartHeight, bottom] = [76, 14, 640, 260, 34];
  const sizes = list.flatMap((curve) => curve.size_bytes);
  const first = Math.log(Math.min(...sizes));
  const last = Math.log(Math.max(...sizes));
  const high = Math.max(...list.flatMap(busBandwidths)) * 1.05;
  const x = (size: number): number => left + ((Math.log(size) - first) / Math.max(1e-9, last - first)) * (chartWidth - left - 14);
  const y = (bandwidth: number): number => top + (1 - bandwidth / high) * (chartHeight - top - bottom);
  const figure = svg('svg', { class: 'chart', viewBox: `0 0 ${chartWidth} ${chartHeight}`, role: 'img', 'aria-label': `${words.curves}. ${words.curvesHelp}` });
  const text = (at: number, down: number, content: string, anchor: string): void => {
    const element = svg('text', { x: at, y: down, 'text-anchor': anchor, class: 'faint' });
    element.textContent = content;
    figure.append(element);
  };
  for (let i = 0; i <= 4; i++) {
    const bandwidth = (high * i) / 4;
    figure.append(svg('line', { class: 'grid', x1: left, x2: chartWidth - 14, y1: y(bandwidth), y2: y(bandwidth) }));
    text(left - 6, y(bandwidth) + 4, rate(bandwidth), 'end');
  }
  for (const part of [0, 1 / 3, 2 / 3, 1]) {
    const size = Math.exp(first + part * (last - first));
    text(Math.min(chartWidth - 44, Math.max(left + 20, x(size))), chartHeight - 12, bytes(Math.round(size)), 'middle');
  }
  list.forEach((curve, i) => {
    const bandwidths = busBandwidths(curve);
    const line = svg('polyline', {
      class: look(i),
      points: curve.size_bytes.map((size, k) => `${x(size).toFixed(1)},${y(bandwidths[k]!).toFixed(1)}`).join(' '),
    });
    const title = svg('title', {});
    title.textContent = `${curve.collective}, ${curve.algorithm}`;
    line.append(title);
    figure.append(line);
  });
  return h(
    'figure',
    { class: 'curve-figure' },
    h('figcaption', {}, words.curvesHelp),
    figure as unknown as HTMLElement,
    h(
      'ul',
      { class: 'legend' },
      ...list.map((curve, i) => h('li', {}, key(i), `${curve.collective}, ${curve.algorithm}`)),
    ),
  );
}

function section(machine: Machine, words: Texts['machine']): HTMLElement {
  const measured = (machine.curves ?? []).filter((curve) => curve.size_bytes.length > 0 && curve.ranks > 1);
  const codecs = machine.codecs ?? [];
  return h(
    'section',
    {},
    h('h2', {}, foreign(machine.name)),
    h('p', {}, words.lead(ranksOf(machine), words.basis[machine.basis] ?? machine.basis)),
    machine.source === '' ? null : h('p', { class: 'aside', lang: 'en' }, `${words.source} `, foreign(machine.source)),
    machine.compute_slowdown === undefined ? null : h('p', {}, words.slowdown(machine.compute_slowdown.toFixed(2))),
    ...tree(machine, words),
    table(
      words.levels,
      words.levelColumns,
      machine.levels.map((level): Cell[] => [
        foreign(level.name),
        level.group_size,
        time(level.latency_s),
        rate(level.bandwidth_bytes_per_s),
        level.in_switch_efficiency === undefined ? '–' : percent(level.in_switch_efficiency),
      ]),
    ),
    h('h3', {}, words.curves),
    ...(measured.length === 0
      ? [h('p', {}, words.noCurves)]
      : [
          curves(measured, words),
          table(
            words.curves,
            words.curveColumns,
            measured.map((curve): Cell[] => [
              curve.collective,
              curve.algorithm,
              curve.ranks,
              curve.size_bytes.length,
              time(curve.time_s[0]!),
              time(curve.time_s.at(-1)!),
              rate(Math.max(...busBandwidths(curve))),
            ]),
            2,
          ),
        ]),
    ...(codecs.length === 0
      ? []
      : [
          table(
            words.codecs,
            words.codecColumns,
            codecs.map((codec): Cell[] => [
              codec.codec,
              rate(codec.encode_bytes_per_s),
              rate(codec.decode_bytes_per_s),
              codec.ratio.toFixed(2),
              percent(codec.error_ratio),
            ]),
          ),
        ]),
  );
}

export function machinePage(state: State): HTMLElement {
  const words = state.texts;
  return h('article', {}, h('h1', {}, words.pages.machine), ...(state.report.machines ?? []).map((machine) => section(machine, words.machine)));
}
