// SPDX-License-Identifier: Apache-2.0
// The animated demonstration: one simulated step, one clock, four cameras.

import { choice, slider, toggle } from '../controls';
import { command, h } from '../dom';
import { download } from '../download';
import { time } from '../format';
import type { Model } from '../model';
import type { State } from '../state';
import { svg } from '../svg';
import { curve } from '../whatif/curve';
import { node, pipe, source, terminal, viewBox, type Camera } from './cameras';
import { layerBytes, machineOf, profileOf, simulateStep, slowSpeed, type Knobs, type Step } from './step';

const layerCounts = [4, 6, 8, 12, 16, 24, 32, 48, 64];
const bucketLayers = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];
const latencies = [10, 50, 100, 200, 500, 1000, 2000, 5000];
const rates = [1, 2, 5, 10, 25, 50, 100, 200];
const rankCounts = [2, 3, 4, 6, 8, 16, 32, 64];
/** What a whole step takes to watch at speed 1. */
const showSeconds = 12;
const speeds = [0.1, 0.25, 0.5, 1, 2, 4];
const cameras: [name: 'source' | 'pipe' | 'node' | 'terminal', camera: Camera][] = [['source', source], ['pipe', pipe], ['node', node], ['terminal', terminal]];

export function demo(model: Model, state: State): HTMLElement {
  const words = state.texts.learn;
  const still = matchMedia('(prefers-reduced-motion: reduce)').matches;
  const knobs: Knobs = { layers: 12, bucket: 2, latencyUs: 500, gbits: 10, ranks: 4, overlap: true, slow: false };
  let step: Step = simulateStep(model, knobs);
  let t = 0;
  let speed = 1;
  let last = 0;
  let playing = false;
  let picture: 'plain' | 'restaurant' | 'tea' = 'plain';

  const views = cameras.map(([name, camera]) => {
    const image = svg('svg', { viewBox, class: 'camera', role: 'img' });
    const caption = h('p', { class: 'caption' });
    const said = h('p', { class: 'aside said' });
    const figure = h('figure', { class: `view ${name}` }, h('h3', {}, words.cameras[name]), image as unknown as HTMLElement, said, caption);
    return { name, camera, image, caption, said, figure };
  });
  const result = h('div', {});
  const clock = h('output', { class: 'clock' });
  const scrub = h('input', { type: 'range', min: 0, max: 1000, value: 0, step: 1, 'aria-label': words.scrub });

  const draw = (): void => {
    for (const view of views) {
      view.image.replaceChildren();
      // What begins or ends at this moment has done so.
      const text = view.camera(view.image, step, t + 1e-8, words);
      view.said.textContent = text;
      view.image.setAttribute('aria-label', text);
      const caption = words.captions[picture][view.name];
      if (view.caption.textContent !== caption) {
        view.caption.textContent = caption;
      }
    }
    scrub.value = String(Math.round((t / step.length) * 1000));
    scrub.setAttribute('aria-valuetext', time(t));
    clock.textContent = `${time(t)} / ${time(step.length)}`;
  };
  const tick = (now: number): void => {
    if (!playing || !views[0]!.figure.isConnected) {
      return;
    }
    t += ((Math.max(0, now - last) / 1000) * speed * step.length) / showSeconds;
    last = now;
    if (t >= step.length) {
      t = step.length;
      play(false);
    }
    draw();
    requestAnimationFrame(tick);
  };
  const play = (on: boolean): void => {
    playing = on;
    button.textContent = on ? words.pause : words.play;
    if (on) {
      t = t >= step.length ? 0 : t;
      last = performance.now();
      requestAnimationFrame(tick);
    }
  };
  const jump = (direction: 1 | -1): void => {
    play(false);
    const { moments } = step;
    const next = direction > 0 ? moments.find((at) => at > t + 1e-7) : [...moments].reverse().find((at) => at < t - 1e-7);
    t = next ?? (direction > 0 ? step.length : 0);
    draw();
  };
  const button = h('button', { type: 'button', class: 'play', onclick: () => play(!playing) }, words.play);
  scrub.addEventListener('input', () => {
    play(false);
    t = (Number(scrub.value) / 1000) * step.length;
    draw();
  });

  let timer = 0;
  const again = (): void => {
    clearTimeout(timer);
    timer = window.setTimeout(() => {
      const share = t / step.length;
      step = simulateStep(model, knobs);
      t = share * step.length;
      const { answer } = step;
      result.replaceChildren(
        h('p', { class: 'verdict', 'aria-live': 'polite' }, words.verdict(time(step.serial_s), time(answer.step_s), time(answer.plan.predicted_step_s))),
        curve({ points: answer.sweep ?? [], best_s: answer.plan.predicted_step_s, bound_s: answer.plan.bound_s, cap: knobs.overlap ? knobs.bucket * layerBytes : null, step_s: answer.step_s }, state.texts),
        command(`stretto simulate layers.json --machine ${machineOf(knobs)} --algorithm ring --schedule ${knobs.overlap ? 'overlap' : 'serial'} --buckets ${knobs.bucket * 4}M${knobs.slow ? ` --rank-speed ${knobs.ranks - 1}=${slowSpeed}` : ''}`, state.texts.copy, state.texts.copied),
        h('p', {}, h('button', { type: 'button', onclick: () => download('layers.json', JSON.stringify(profileOf(knobs.layers), null, 1), 'application/json') }, words.saveProfile)),
      );
      draw();
    }, 40);
  };
  const over = (label: string, values: number[], key: 'layers' | 'bucket' | 'latencyUs' | 'gbits' | 'ranks', say: (value: number) => string): HTMLElement =>
    slider(label, values.length, values.indexOf(knobs[key]), (i) => say(values[i]!), (i) => {
      knobs[key] = values[i]!;
      again();
    }).element;
  const panel = h(
    'form',
    { class: 'panel wide', 'aria-label': words.knobs, onsubmit: (event: Event) => event.preventDefault() },
    h(
      'fieldset',
      {},
      h('legend', {}, words.knobs),
      over(words.layers, layerCounts, 'layers', String),
      over(words.bucket, bucketLayers, 'bucket', words.bucketValue),
      over(words.latency, latencies, 'latencyUs', (value) => time(value * 1e-6)),
      over(words.bandwidth, rates, 'gbits', (value) => `${value} Gbit/s`),
      over(words.ranks, rankCounts, 'ranks', String),
      toggle(words.overlap, knobs.overlap, (on) => {
        knobs.overlap = on;
        again();
      }).element,
      toggle(words.slow, knobs.slow, (on) => {
        knobs.slow = on;
        again();
      }).element,
      choice(words.captionsLabel, Object.entries(words.captionNames), picture, (value) => {
        picture = value as typeof picture;
        draw();
      }).element,
    ),
  );
  const transport = h(
    'div',
    { class: 'transport', role: 'toolbar', 'aria-label': words.transport },
    still ? null : button,
    h('button', { type: 'button', onclick: () => jump(-1) }, words.back),
    h('button', { type: 'button', onclick: () => jump(1) }, words.next),
    scrub,
    clock,
    still
      ? null
      : choice(words.speed, speeds.map((value) => [String(value), `${value}×`]), '1', (value) => {
          speed = Number(value);
        }).element,
  );
  again();
  draw();
  return h(
    'section',
    { class: 'demo' },
    h('p', { class: 'lead' }, words.demoLead),
    panel,
    transport,
    still ? h('p', { class: 'aside' }, words.still) : null,
    h('div', { class: 'views' }, ...views.map((view) => view.figure)),
    result,
  );
}
