// SPDX-License-Identifier: Apache-2.0
// Step over bucket size, with what the best buckets and no buckets at all could do.

import { h } from '../dom';
import { bytes, time } from '../format';
import { svg } from '../svg';
import type { Texts } from '../text';

export interface Curve {
  points: { cap_bytes: number; buckets: number; step_s: number }[];
  best_s: number;
  bound_s: number;
  /** Where one stands: a cap, if buckets have one. */
  cap: number | null;
  step_s: number;
}

const width = 560;
const height = 230;
const left = 62;
const top = 14;
const bottom = 34;

export function curve(of: Curve, words: Texts): HTMLElement {
  const { points } = of;
  const caps = points.map((point) => point.cap_bytes);
  const low = Math.min(of.bound_s, of.best_s, ...points.map((point) => point.step_s)) * 0.96;
  const high = Math.max(of.step_s, ...points.map((point) => point.step_s)) * 1.03;
  const first = Math.log(Math.min(...caps));
  const last = Math.log(Math.max(...caps));
  const x = (cap: number): number => left + ((Math.log(cap) - first) / Math.max(1e-9, last - first)) * (width - left - 14);
  const y = (step: number): number => top + ((high - step) / Math.max(1e-12, high - low)) * (height - top - bottom);
  const label = `${words.whatIf.curve}. ${words.whatIf.curveSaid(time(of.best_s), time(of.bound_s), time(of.step_s))}`;
  const figure = svg('svg', { class: 'chart', viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': label });
  const text = (at: number, down: number, content: string, anchor = 'start', kind = 'faint'): void => {
    const element = svg('text', { x: at, y: down, 'text-anchor': anchor, class: kind });
    element.textContent = content;
    figure.append(element);
  };
  const line = (down: number, kind: string): void => void figure.append(svg('line', { x1: left, x2: width - 14, y1: down, y2: down, class: kind }));
  for (let i = 0; i <= 3; i++) {
    const step = low + ((high - low) * i) / 3;
    line(y(step), 'grid');
    text(left - 6, y(step) + 4, time(step), 'end');
  }
  line(y(of.bound_s), 'boundline');
  line(y(of.best_s), 'bestline');
  const most = caps.length;
  for (const i of [0, Math.floor(most / 3), Math.floor((2 * most) / 3), most - 1]) {
    text(Math.min(width - 40, Math.max(left + 20, x(caps[i]!))), height - 12, bytes(caps[i]!), 'middle');
  }
  figure.append(svg('polyline', { class: 'curve', points: points.map((point) => `${x(point.cap_bytes).toFixed(1)},${y(point.step_s).toFixed(1)}`).join(' ') }));
  if (of.cap !== null) {
    figure.append(svg('circle', { class: 'here', cx: x(Math.min(Math.max(of.cap, Math.exp(first)), Math.exp(last))), cy: y(of.step_s), r: 6 }));
  } else {
    line(y(of.step_s), 'hereline');
  }
  return h(
    'figure',
    { class: 'curve-figure' },
    h('figcaption', {}, words.whatIf.curve),
    figure as unknown as HTMLElement,
    h(
      'ul',
      { class: 'legend' },
      h('li', {}, h('span', { class: 'swatch line-here', 'aria-hidden': 'true' }), words.whatIf.here),
      h('li', {}, h('span', { class: 'swatch line-best', 'aria-hidden': 'true' }), words.whatIf.best),
      h('li', {}, h('span', { class: 'swatch line-bound', 'aria-hidden': 'true' }), words.bound),
    ),
  );
}
