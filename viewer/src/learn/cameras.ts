// SPDX-License-Identifier: Apache-2.0
// Four views of one simulated step at one moment: source, pipe, node, terminal.

import { bytes, percent, time } from '../format';
import { svg } from '../svg';
import type { LearnTexts } from '../text/learn_en';
import { chunkSent, ringState, type Step } from './step';

/** Draws the step at time t (s) into its picture, and says in words what is seen. */
export type Camera = (picture: SVGElement, step: Step, t: number, words: LearnTexts) => string;

const width = 520;
const height = 250;
export const viewBox = `0 0 ${width} ${height}`;

function add(parent: SVGElement, tag: string, attributes: Record<string, string | number>, content?: string): SVGElement {
  const element = svg(tag, attributes);
  if (content !== undefined) {
    element.textContent = content;
  }
  parent.append(element);
  return element;
}

const share = (t: number, from: number, to: number): number => (to <= from ? Number(t >= to) : Math.min(1, Math.max(0, (t - from) / (to - from))));

/** What has become of the gradient of each layer. */
function stageOf(step: Step, layer: number, t: number): 'none' | 'ready' | 'travels' | 'reduced' {
  const bucket = step.buckets.find((each) => each.layers.includes(layer));
  if (bucket && t >= bucket.end) {
    return 'reduced';
  }
  if (bucket && t >= bucket.start) {
    return 'travels';
  }
  return t >= step.ready[layer]! ? 'ready' : 'none';
}

/** Layers from input to output; backward runs from right to left, and leaves gradients behind it. */
export const source: Camera = (picture, step, t, words) => {
  const n = step.knobs.layers;
  const gap = n > 32 ? 1 : 3;
  const each = (width - 40) / n;
  const now = step.compute.find((part) => t >= part.begin && t < part.end);
  const count = { none: 0, ready: 0, travels: 0, reduced: 0 };
  for (let layer = 0; layer < n; layer++) {
    const x = 20 + layer * each;
    const active = now?.layer === layer;
    const done = active ? share(t, now.begin, now.end) : 0;
    add(picture, 'rect', { x, y: 62, width: each - gap, height: 62, rx: 3, class: 'cell' });
    if (active) {
      const filled = done * (each - gap);
      add(picture, 'rect', { x: now.forward ? x : x + each - gap - filled, y: 62, width: filled, height: 62, rx: 3, class: now.forward ? 'forward' : 'backward' });
      add(picture, 'rect', { x, y: 62, width: each - gap, height: 62, rx: 3, class: 'frame' });
    }
    const stage = stageOf(step, layer, t);
    count[stage]++;
    if (stage !== 'none') {
      // A shape for each stage as well as a colour.
      const middle = x + (each - gap) / 2;
      const size = Math.min(9, Math.max(2.5, (each - gap) / 2));
      add(picture, 'line', { x1: middle, x2: middle, y1: 124, y2: 158, class: 'thread' });
      if (stage === 'ready') {
        add(picture, 'circle', { cx: middle, cy: 166, r: size, class: 'hollow' });
      } else if (stage === 'travels') {
        add(picture, 'rect', { x: middle - size, y: 166 - size, width: 2 * size, height: 2 * size, class: 'unhidden' });
      } else {
        add(picture, 'circle', { cx: middle, cy: 166, r: size, class: 'hidden' });
      }
    }
  }
  add(picture, 'text', { x: 20, y: 50, class: 'faint' }, words.input);
  add(picture, 'text', { x: width - 20, y: 50, 'text-anchor': 'end', class: 'faint' }, words.output);
  const forward = t < step.forwardEnd;
  add(picture, 'text', { x: width / 2, y: 26, 'text-anchor': 'middle', class: 'strong' }, now === undefined ? words.nothingComputes : forward ? words.forward : words.backward);
  add(picture, 'text', { x: 20, y: 212, class: 'faint' }, words.sourceKey);
  return words.sourceSays(count.ready, count.travels, count.reduced, n);
};

/** The bucket that fills, those that wait, the one in the pipe, those that arrived. */
export const pipe: Camera = (picture, step, t, words) => {
  const { buckets, knobs } = step;
  const tallest = Math.max(...buckets.map((bucket) => bucket.layers.length));
  const unit = Math.min(14, 110 / tallest);
  const filling = buckets.find((bucket) => bucket.layers.some((layer) => t < step.readySlowest[layer]!));
  const waiting = buckets.filter((bucket) => bucket !== filling && t >= bucket.ready && t < bucket.start);
  const moving = buckets.filter((bucket) => t >= bucket.start && t < bucket.end);
  const arrived = buckets.filter((bucket) => t >= bucket.end);
  // The open bucket.
  add(picture, 'path', { d: 'M20 70V190H92V70', class: 'outline' });
  if (filling !== undefined) {
    const held = filling.layers.filter((layer) => t >= step.ready[layer]!).length;
    for (let k = 0; k < filling.layers.length; k++) {
      add(picture, 'rect', { x: 24, y: 188 - (k + 1) * unit, width: 64, height: unit - 1, class: k < held ? 'backward' : 'empty' });
    }
    add(picture, 'text', { x: 56, y: 58, 'text-anchor': 'middle', class: 'faint' }, `${held}/${filling.layers.length}`);
  }
  add(picture, 'text', { x: 56, y: 212, 'text-anchor': 'middle', class: 'faint' }, words.fills);
  // The queue.
  waiting.slice(0, 4).forEach((_, i) => add(picture, 'rect', { x: 106 + i * 17, y: 168, width: 14, height: 20, class: 'hollow' }));
  add(picture, 'text', { x: 138, y: 212, 'text-anchor': 'middle', class: 'faint' }, `${words.waits}: ${waiting.length}`);
  // The pipe: as thick as the bandwidth, and a gate that takes the latency whatever passes.
  const thick = 12 + 11 * Math.log10(1 + knobs.gbits);
  const y = 120;
  add(picture, 'rect', { x: 192, y: y - thick / 2, width: 216, height: thick, class: 'tube' });
  add(picture, 'rect', { x: 184, y: y - thick / 2 - 10, width: 8, height: thick + 20, class: 'gate' });
  for (const bucket of moving) {
    const at = share(t, bucket.start, bucket.end);
    add(picture, 'rect', { x: 194 + at * 172, y: y - thick / 2 + 3, width: 40, height: thick - 6, rx: 3, class: 'hidden' });
    add(picture, 'text', { x: 214 + at * 172, y: y - thick / 2 - 8, 'text-anchor': 'middle' }, `${Math.floor(at * 100)} %`);
  }
  add(picture, 'text', { x: 188, y: y - thick / 2 - 18, 'text-anchor': 'middle', class: 'faint' }, 'α');
  add(picture, 'text', { x: 300, y: 212, 'text-anchor': 'middle', class: 'faint' }, `${knobs.gbits} Gbit/s`);
  // Arrived.
  arrived.slice(-24).forEach((_, i) => add(picture, 'rect', { x: 424 + (i % 6) * 13, y: 168 - Math.floor(i / 6) * 14, width: 11, height: 12, class: 'hidden' }));
  add(picture, 'text', { x: 462, y: 212, 'text-anchor': 'middle', class: 'faint' }, `${arrived.length}/${buckets.length}`);
  const total = buckets.reduce((sum, bucket) => sum + bucket.end - bucket.start, 0);
  add(picture, 'text', { x: width / 2, y: 26, 'text-anchor': 'middle', class: 'strong' }, words.formula(buckets.length, time(total)));
  return words.pipeSays(arrived.length, buckets.length, moving[0] ? bytes(moving[0].bytes) : null);
};

/** The ranks on their ring, and what each holds of the bucket that travels. */
export const node: Camera = (picture, step, t, words) => {
  const drawn = Math.min(step.knobs.ranks, 8);
  const bucket = step.buckets.find((each) => t >= each.start && t < each.end) ?? [...step.buckets].reverse().find((each) => t >= each.end);
  const steps = 2 * (drawn - 1);
  const at = bucket === undefined ? 0 : share(t, bucket.start, bucket.end) * steps;
  const whole = Math.min(steps, Math.floor(at));
  const state = ringState(drawn, whole);
  const cx = 140;
  const cy = 122;
  const radius = 88;
  const place = (r: number): [number, number] => {
    const angle = (2 * Math.PI * r) / drawn - Math.PI / 2;
    return [cx + radius * Math.cos(angle), cy + radius * Math.sin(angle)];
  };
  const travels = bucket !== undefined && t >= bucket.start && t < bucket.end;
  for (let r = 0; r < drawn; r++) {
    const [x1, y1] = place(r);
    const [x2, y2] = place((r + 1) % drawn);
    add(picture, 'line', { x1, y1, x2, y2, class: travels ? 'thread on' : 'thread' });
    if (travels) {
      const part = at - whole;
      add(picture, 'circle', { cx: x1 + (x2 - x1) * part, cy: y1 + (y2 - y1) * part, r: 7, class: 'hidden' });
      add(picture, 'text', { x: x1 + (x2 - x1) * part, y: y1 + (y2 - y1) * part + 4, 'text-anchor': 'middle', class: 'on' }, String(chunkSent(drawn, r, whole)));
    }
  }
  for (let r = 0; r < drawn; r++) {
    const [x, y] = place(r);
    const late = step.knobs.slow && r === drawn - 1;
    add(picture, 'circle', { cx: x, cy: y, r: 15, class: late ? 'slow' : 'rank' });
    add(picture, 'text', { x, y: y + 4, 'text-anchor': 'middle' }, late ? `${r}!` : String(r));
  }
  // What each rank holds: a cell per chunk, with the number of ranks that are in its sum.
  const cell = Math.min(24, 168 / drawn);
  for (let r = 0; r < drawn; r++) {
    for (let c = 0; c < drawn; c++) {
      const value = state[r]![c]!;
      const full = value === drawn;
      add(picture, 'rect', { x: 318 + c * cell, y: 52 + r * cell, width: cell - 2, height: cell - 2, class: full ? 'hidden' : 'backward', 'fill-opacity': full ? 1 : 0.25 + (0.6 * value) / drawn });
      add(picture, 'text', { x: 318 + c * cell + cell / 2 - 1, y: 52 + r * cell + cell / 2 + 3, 'text-anchor': 'middle', class: full ? 'on small' : 'small' }, String(value));
    }
    add(picture, 'text', { x: 312, y: 52 + r * cell + cell / 2 + 3, 'text-anchor': 'end', class: 'faint small' }, String(r));
  }
  add(picture, 'text', { x: 318, y: 42, class: 'faint' }, words.chunks);
  const phase = !travels ? words.idleRing : whole < drawn - 1 ? words.scatterPhase : words.gatherPhase;
  add(picture, 'text', { x: 290, y: 22, class: 'strong' }, phase);
  add(picture, 'text', { x: 20, y: 244, class: 'faint' }, words.ringSteps(whole, steps, step.knobs.ranks));
  return `${phase}. ${words.ringSteps(whole, steps, step.knobs.ranks)}`;
};

/** Three ways through the same step, side by side. */
export const terminal: Camera = (picture, step, t, words) => {
  const compute = step.answer.plan.compute_s;
  const rows: [string, number][] = [
    [words.serial, step.serial_s],
    [words.asSet, step.answer.step_s],
    [words.planned, step.answer.plan.predicted_step_s],
  ];
  const longest = Math.max(...rows.map(([, length]) => length));
  const x = (s: number): number => 20 + (s / longest) * (width - 110);
  rows.forEach(([name, length], i) => {
    const y = 52 + i * 50;
    const reached = Math.min(length, t);
    add(picture, 'text', { x: 20, y: y - 6, class: i === 1 ? 'strong' : 'faint' }, name);
    add(picture, 'rect', { x: 20, y, width: x(length) - 20, height: 20, class: 'empty' });
    add(picture, 'rect', { x: 20, y, width: x(Math.min(compute, reached)) - 20, height: 20, class: 'backward' });
    if (reached > compute) {
      add(picture, 'rect', { x: x(compute), y, width: x(reached) - x(compute), height: 20, class: 'unhidden' });
    }
    add(picture, 'text', { x: x(length) + 6, y: y + 15 }, time(length));
  });
  const { summary } = step.answer;
  const exposed = summary.exposed_s ?? 0;
  const eta = words.eta(percent(1 - exposed / step.answer.step_s), time(exposed));
  add(picture, 'text', { x: 20, y: 218, class: 'strong' }, eta);
  add(picture, 'text', { x: 20, y: 238, class: 'faint' }, words.boundIs(time(step.answer.plan.bound_s)));
  return `${rows.map(([name, length]) => `${name} ${time(length)}`).join(', ')}. ${eta}`;
};
