// SPDX-License-Identifier: Apache-2.0
// The library's own codecs on a vector one can see, with what they leave out, and what they save.

import { choice, decades, nearest, slider } from '../controls';
import { command, h } from '../dom';
import { bytes, time } from '../format';
import type { Model } from '../model';
import type { State } from '../state';
import { svg } from '../svg';

const count = 48;
const width = 760;
const height = 190;
/** Of the gradient in the comparison of times. */
const gradientBytes = 100e6;
const shares = [0.02, 0.05, 0.1, 0.2, 0.3, 0.5];
const rates = decades(1, 200);
const codecRates = decades(1, 100);
const ranks = 8;

/** Normal deviates that are the same each time, some far larger than most: what gradients look like. */
function gradientOf(step: number): number[] {
  let state = 12345 + step * 7919;
  const random = (): number => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state + 1) / 4294967297;
  };
  return Array.from({ length: count }, (_, i) => {
    const normal = Math.sqrt(-2 * Math.log(random())) * Math.cos(2 * Math.PI * random());
    return normal * (i % 11 === 3 ? 1 : 0.3);
  });
}

export function compression(model: Model, state: State): HTMLElement {
  const words = state.texts.learn;
  let codec: 'int8' | 'topk' = 'topk';
  let share = 0.1;
  let gbits = 10;
  let codecRate = 10;
  let stepNumber = 0;
  let residual = new Array<number>(count).fill(0);
  const picture = svg('svg', { viewBox: `0 0 ${width} ${height}`, class: 'camera', role: 'img' });
  const says = h('p', { 'aria-live': 'polite' });
  const times = h('div', {});

  const name = (): string => (codec === 'int8' ? 'int8' : `topk:${share}`);
  const draw = (): void => {
    const gradient = gradientOf(stepNumber);
    const sent = model.compress(name(), gradient, residual);
    const wanted = gradient.map((value, i) => value + residual[i]!);
    const most = Math.max(...wanted.map(Math.abs), 1e-9);
    const each = (width - 20) / count;
    const middle = height / 2;
    const y = (value: number): number => middle - (value / most) * (middle - 12);
    picture.replaceChildren(svg('line', { x1: 10, x2: width - 10, y1: middle, y2: middle, class: 'thread' }));
    wanted.forEach((value, i) => {
      const x = 10 + i * each;
      const bar = (to: number, left: number, wide: number, kind: string): void =>
        void picture.append(svg('rect', { x: x + left, y: Math.min(y(0), y(to)), width: wide, height: Math.max(0.5, Math.abs(y(to) - y(0))), class: kind }));
      bar(value, 1, each - 3, 'hollow');
      bar(sent.arrived[i]!, 3, (each - 7) / 2, 'hidden');
      bar(sent.residual[i]!, 3 + (each - 7) / 2, (each - 7) / 2, 'unhidden');
    });
    const norm = (values: number[]): number => Math.sqrt(values.reduce((sum, value) => sum + value * value, 0));
    const text = words.compressionSays(stepNumber + 1, sent.wire_bytes, sent.plain_bytes, (sent.plain_bytes / sent.wire_bytes).toFixed(1), norm(sent.residual).toFixed(3));
    says.textContent = text;
    picture.setAttribute('aria-label', text);
    drawTimes(sent.wire_bytes / sent.plain_bytes);
    next = sent.residual;
  };
  let next = residual;
  const drawTimes = (ratio: number): void => {
    const machine = `${ranks}@${gbits}Gbit/s,50us`;
    const best = (collective: string, size: number): number => model.collectiveTimes(machine, collective, Math.max(1, Math.round(size)))[0]?.time_s ?? 0;
    const plain = best('all_reduce', gradientBytes);
    // Dense codecs travel as a reduce-scatter and an all-gather of encoded parts; what is chosen is gathered from all.
    const wire = codec === 'int8' ? best('all_reduce', gradientBytes * ratio) : best('all_gather', gradientBytes * ratio * ranks);
    const encode = gradientBytes / (codecRate * 1e9);
    const decode = codec === 'int8' ? 2 * encode : (gradientBytes * ratio * ranks) / (codecRate * 1e9);
    const parts: [string, [string, number][]][] = [
      [words.plainWay, [['hidden', plain]]],
      [words.codedWay, [['optimizer', encode], ['hidden', wire], ['copy', decode]]],
    ];
    const longest = Math.max(plain, encode + wire + decode);
    times.replaceChildren(
      h(
        'ul',
        { class: 'bars race' },
        ...parts.map(([who, pieces]) => {
          const bar = h('span', { class: 'parts', 'aria-hidden': 'true' });
          for (const [kind, length] of pieces) {
            const piece = h('span', { class: kind });
            piece.style.setProperty('width', `${(100 * length) / longest}%`);
            bar.append(piece);
          }
          return h('li', {}, h('span', { class: 'who' }, who), bar, h('span', { class: 'value' }, time(pieces.reduce((sum, [, length]) => sum + length, 0))));
        }),
      ),
      h(
        'ul',
        { class: 'legend' },
        ...([['optimizer', words.encode, encode], ['hidden', words.wire, wire], ['copy', words.decode, decode]] as [string, string, number][]).map(([kind, text, length]) =>
          h('li', {}, h('span', { class: `swatch ${kind}`, 'aria-hidden': 'true' }), `${text}: ${time(length)}`)),
      ),
      h('p', { class: 'verdict' }, encode + wire + decode < plain ? words.pays(time(plain - encode - wire - decode)) : words.costs(time(encode + wire + decode - plain))),
    );
  };
  const restart = (): void => {
    stepNumber = 0;
    residual = new Array<number>(count).fill(0);
    draw();
  };
  const kept = slider(words.kept, shares.length, shares.indexOf(share), (i) => `${shares[i]! * 100} %`, (i) => {
    share = shares[i]!;
    restart();
  });
  const panel = h(
    'form',
    { class: 'panel wide', 'aria-label': words.compressionTitle, onsubmit: (event: Event) => event.preventDefault() },
    h(
      'fieldset',
      {},
      h('legend', {}, words.codec),
      choice(words.codec, [['topk', words.topk], ['int8', words.int8]], codec, (value) => {
        codec = value as typeof codec;
        kept.show(codec === 'topk');
        restart();
      }).element,
      kept.element,
      slider(words.bandwidth, rates.length, nearest(rates, gbits), (i) => `${rates[i]} Gbit/s`, (i) => {
        gbits = rates[i]!;
        draw();
      }).element,
      slider(words.codecRate, codecRates.length, nearest(codecRates, codecRate), (i) => `${codecRates[i]} GB/s`, (i) => {
        codecRate = codecRates[i]!;
        draw();
      }).element,
    ),
  );
  const buttons = h(
    'div',
    { class: 'buttons' },
    h('button', {
      type: 'button',
      onclick: () => {
        stepNumber++;
        residual = next;
        draw();
      },
    }, words.nextStep),
    h('button', { type: 'button', onclick: restart }, words.fromStart),
  );
  draw();
  return h(
    'section',
    {},
    h('h2', {}, words.compressionTitle),
    h('p', {}, words.compressionLead),
    panel,
    buttons,
    picture as unknown as HTMLElement,
    h(
      'ul',
      { class: 'legend' },
      h('li', {}, h('span', { class: 'swatch outline', 'aria-hidden': 'true' }), words.wanted),
      h('li', {}, h('span', { class: 'swatch hidden', 'aria-hidden': 'true' }), words.arrives),
      h('li', {}, h('span', { class: 'swatch exposed', 'aria-hidden': 'true' }), words.left),
    ),
    says,
    h('h3', {}, words.timesTitle(bytes(gradientBytes), ranks)),
    times,
    h('p', { class: 'aside' }, words.timesNote),
    command('stretto train -n 2 --emulate 2@200Mbit/s,200us --compress int8 --steps 20', state.texts.copy, state.texts.copied),
  );
}
