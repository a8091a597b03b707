// SPDX-License-Identifier: Apache-2.0
// Algorithms, orders of ranks and kinds of parallelism, priced by the library.

import { choice } from '../controls';
import { command, foreign, h, table, type Cell } from '../dom';
import { bytes, time } from '../format';
import { Refused, type Model } from '../model';
import type { State } from '../state';
import { svg } from '../svg';

const exchanged = 100e6;
const counts = [8, 16, 32, 64, 128, 256];
const algorithms = ['ring', 'hierarchical', 'parameter_server'] as const;
const machineOf = (ranks: number): string => (ranks === 8 ? '8@intra=200GB/s,2us' : `${ranks / 8}x8@intra=200GB/s,2us@inter=25GB/s,5us`);

/** Ring, hierarchical and parameter server, from one node of 8 to 32 of them. */
export function algorithmsByRanks(model: Model, state: State): HTMLElement {
  const words = state.texts.learn;
  const found = counts.map((ranks) => new Map(model.collectiveTimes(machineOf(ranks), 'all_reduce', exchanged).map(({ algorithm, time_s }) => [algorithm, time_s])));
  const longest = Math.max(...found.flatMap((times) => algorithms.map((name) => times.get(name) ?? 0)));
  const kinds = { ring: 'compute', hierarchical: 'hidden', parameter_server: 'unhidden' } as const;
  const width = 720;
  const height = 240;
  const floor = Math.min(...found.flatMap((times) => algorithms.map((name) => times.get(name) ?? Infinity))) / 2;
  const y = (s: number): number => height - 30 - (Math.log(s / floor) / Math.log(longest / floor)) * (height - 60);
  const figure = svg('svg', { viewBox: `0 0 ${width} ${height}`, class: 'camera', role: 'img', 'aria-label': words.algorithmsTitle });
  counts.forEach((ranks, i) => {
    const x = 30 + i * 115;
    algorithms.forEach((name, k) => {
      const s = found[i]!.get(name);
      if (s !== undefined) {
        figure.append(svg('rect', { x: x + k * 30, y: y(s), width: 26, height: height - 30 - y(s), class: kinds[name] }));
        const label = svg('text', { x: x + k * 30 + 13, y: y(s) - 4, 'text-anchor': 'middle', class: 'small' });
        label.textContent = time(s).replace(/ .*/, '');
        figure.append(label);
      }
    });
    const label = svg('text', { x: x + 44, y: height - 10, 'text-anchor': 'middle' });
    label.textContent = String(ranks);
    figure.append(label);
  });
  return h(
    'section',
    {},
    h('h2', {}, words.algorithmsTitle),
    h('p', {}, words.algorithmsLead),
    figure as unknown as HTMLElement,
    h('ul', { class: 'legend' }, ...algorithms.map((name) => h('li', {}, h('span', { class: `swatch ${kinds[name] === 'unhidden' ? 'exposed' : kinds[name]}`, 'aria-hidden': 'true' }), words.algorithmNames[name]))),
    table(words.algorithmsTitle, [state.texts.whatIf.ranks, ...algorithms.map((name) => words.algorithmNames[name])], counts.map((ranks, i) => [String(ranks), ...algorithms.map((name) => (found[i]!.has(name) ? time(found[i]!.get(name)!) : 'n/a'))])),
    command(`stretto plan resnet50 --machine ${machineOf(64)} --ranks 8,16,32,64,128,256`, state.texts.copy, state.texts.copied),
  );
}

/** 4 nodes of 8 ranks, in order and shuffled: which edges of the ring leave a node. */
export function rankOrder(model: Model, state: State): HTMLElement {
  const words = state.texts.learn;
  const machine = '4x8@intra=200GB/s,2us@inter=25GB/s,5us';
  const inOrder = Array.from({ length: 32 }, (_, i) => i);
  let places = inOrder;
  let seed = 1;
  const figure = svg('svg', { viewBox: '0 0 720 270', class: 'camera', role: 'img' });
  const says = h('p', { 'aria-live': 'polite' });
  const best = model.ring(machine, inOrder, exchanged).all_reduce_s;
  const draw = (): void => {
    const ring = model.ring(machine, places, exchanged);
    const at = (rank: number): [number, number] => {
      const place = places[rank]!;
      const nodeAt = Math.floor(place / 8);
      return [40 + (nodeAt % 2) * 360 + (place % 4) * 80 + 20, 30 + Math.floor(nodeAt / 2) * 130 + Math.floor((place % 8) / 4) * 60 + 22];
    };
    figure.replaceChildren();
    for (let n = 0; n < 4; n++) {
      figure.append(svg('rect', { x: 24 + (n % 2) * 360, y: 16 + Math.floor(n / 2) * 130, width: 312, height: 112, rx: 10, class: 'empty' }));
    }
    for (const [from, to, level] of ring.edges) {
      const [x1, y1] = at(from);
      const [x2, y2] = at(to);
      figure.append(svg('line', { x1, y1, x2, y2, class: level > 0 ? 'thread far' : 'thread on' }));
    }
    inOrder.forEach((rank) => {
      const [x, y] = at(rank);
      const label = svg('text', { x, y: y + 4, 'text-anchor': 'middle', class: 'small' });
      label.textContent = String(rank);
      figure.append(svg('circle', { cx: x, cy: y, r: 13, class: 'rank' }), label);
    });
    const text = words.orderSays(ring.crossings[1] ?? 0, time(ring.all_reduce_s), (ring.all_reduce_s / best).toFixed(1));
    says.textContent = text;
    figure.setAttribute('aria-label', text);
  };
  const shuffle = (): void => {
    let state32 = seed++ * 2654435761;
    places = [...inOrder];
    for (let i = places.length - 1; i > 0; i--) {
      state32 = (Math.imul(state32, 1664525) + 1013904223) >>> 0;
      const j = state32 % (i + 1);
      [places[i], places[j]] = [places[j]!, places[i]!];
    }
    draw();
  };
  draw();
  return h(
    'section',
    {},
    h('h2', {}, words.orderTitle),
    h('p', {}, words.orderLead),
    h('div', { class: 'buttons' }, h('button', { type: 'button', onclick: () => { places = inOrder; draw(); } }, words.ordered), h('button', { type: 'button', onclick: shuffle }, words.shuffled)),
    figure as unknown as HTMLElement,
    says,
    command('stretto doctor -n 4 --emulate 2x2@intra=20GB/s,2us@inter=1Gbit/s,50us', state.texts.copy, state.texts.copied),
  );
}

/** What travels in each kind of parallelism, of one model on one machine. */
export function parallelism(model: Model, state: State): HTMLElement {
  const words = state.texts.learn;
  const transformers = model.names().models.filter(({ transformer }) => transformer);
  const machine = 'dgx-a100x4';
  const place = h('div', {});
  const draw = (name: string): void => {
    const common = { model: name, machine, device: 'a100-80g', global_batch: 64 };
    const ways: [keyof typeof words.ways, Record<string, number>, (answer: ReturnType<Model['layout']>) => [number, number]][] = [
      ['data', { data: 32, tensor: 1, pipeline: 1 }, (a) => [a.gradient_bytes, 1]],
      ['tensor', { data: 4, tensor: 8, pipeline: 1 }, (a) => [a.tensor_bytes, 4 * a.layers * a.micro_batches]],
      ['pipeline', { data: 8, tensor: 1, pipeline: 4 }, (a) => [a.pipeline_bytes, 2 * a.micro_batches]],
      ['expert', { data: 32, tensor: 1, pipeline: 1, expert: 8, experts: 8 }, (a) => [a.expert_bytes, 4 * a.layers * a.micro_batches]],
    ];
    const rows = ways.map(([key, way, of]): Cell[] => {
      const text = words.ways[key];
      const layout = `${way.data} × ${way.tensor} × ${way.pipeline} × ${way.expert ?? 1}`;
      try {
        const answer = model.layout({ ...common, ...way });
        const [sent, times] = of(answer);
        const fits = answer.memory_bytes <= 80e9;
        return [text.name, layout, h('span', { class: 'words' }, text.what), text.pattern, bytes(sent), String(times), time(answer.step_s), `${bytes(answer.memory_bytes)}${fits ? '' : ` (${words.tooMuch})`}`];
      } catch (error) {
        const why = error instanceof Refused ? error.message : String(error);
        return [text.name, layout, h('span', { class: 'words' }, text.what), text.pattern, h('span', { class: 'words', lang: 'en' }, foreign(why)), '', '', ''];
      }
    });
    place.replaceChildren(
      table(words.parallelTitle, words.parallelColumns, rows, 4),
      command(`stretto plan ${name} --layouts --machine ${machine} --global-batch 64`, state.texts.copy, state.texts.copied),
    );
  };
  const first = transformers.find(({ name }) => name === 'gpt2_1p5b') ?? transformers[0]!;
  const pick = choice(words.transformer, transformers.map(({ name, title }) => [name, title]), first.name, draw);
  draw(first.name);
  return h('section', {}, h('h2', {}, words.parallelTitle), h('p', {}, words.parallelLead), h('div', { class: 'pick' }, pick.element), place);
}

export function misconceptions(state: State): HTMLElement {
  const words = state.texts.learn;
  return h(
    'section',
    {},
    h('h2', {}, words.misconceptionsTitle),
    h(
      'ul',
      { class: 'actions' },
      ...words.misconceptions.map(([claim, truth, shown]) =>
        h('li', {}, h('h3', {}, claim), h('p', {}, truth), command(shown, state.texts.copy, state.texts.copied))),
    ),
  );
}
