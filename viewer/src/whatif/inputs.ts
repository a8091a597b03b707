// SPDX-License-Identifier: Apache-2.0
// What one may change, the question it makes, and the same as a command.

import { choice, decades, nearest, slider, type Control } from '../controls';
import type { Run } from '../data';
import { h } from '../dom';
import { bytes } from '../format';
import type { Names, Question } from '../model';
import type { State } from '../state';

export const ownModel = 'own';
export const ownCosts = 'fitted';
export const flat = 'flat';

const rankCounts = [2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024];
const rates = decades(1, 3000);
const latencies = decades(0.5, 1000);
const factors = [0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10];
const caps = Array.from({ length: 27 }, (_, i) => Math.round((64 << 10) * 2 ** (i / 2)));
const streams = ['1', '2', '4', '0'];
/** Larger ones take the page longer than one likes to wait. */
const slowModels = ['llama3_70b', 'llama3_8b'];

/** All of it, as text: this is what the address holds. */
export interface Inputs {
  model: string;
  machine: string;
  ranks: number;
  gbits: number;
  us: number;
  bandwidth: number;
  latency: number;
  compute: number;
  buckets: string;
  cap: number;
  algorithm: string;
  schedule: string;
  streams: string;
}

/** The run's own step, if it says enough. */
export const ownOf = (run: Run | undefined): NonNullable<Run['model']> | null => (run?.model?.profile ? run.model : null);

export function initial(state: State): Inputs {
  const own = ownOf(state.run);
  const inputs: Inputs = {
    model: own !== null ? ownModel : 'resnet50',
    machine: own?.fitted ? ownCosts : flat,
    ranks: 8,
    gbits: 10,
    us: 50,
    bandwidth: 1,
    latency: 1,
    compute: 1,
    buckets: 'ddp',
    cap: caps[nearest(caps, 4 << 20)]!,
    algorithm: 'auto',
    schedule: 'overlap',
    streams: '1',
  };
  for (const key of Object.keys(inputs) as (keyof Inputs)[]) {
    const text = state.get(key);
    if (text !== null && text.length < 40) {
      const number = Number(text);
      if (typeof inputs[key] === 'string') {
        (inputs as unknown as Record<string, string>)[key] = text;
      } else if (Number.isFinite(number) && number > 0) {
        (inputs as unknown as Record<string, number>)[key] = number;
      }
    }
  }
  if (inputs.model === ownModel && own === null) {
    inputs.model = 'resnet50';
  }
  if (inputs.machine === ownCosts && (inputs.model !== ownModel || !own?.fitted)) {
    inputs.machine = flat;
  }
  return inputs;
}

const machineText = (inputs: Inputs): string =>
  inputs.machine === flat ? `${inputs.ranks}@${inputs.gbits}Gbit/s,${inputs.us}us` : inputs.machine;
const bucketsText = (inputs: Inputs): string => (inputs.buckets === 'size' ? String(inputs.cap) : inputs.buckets);

export function questionOf(inputs: Inputs, run: Run | undefined): Question {
  const own = ownOf(run);
  const question: Question = {
    schedule: inputs.schedule,
    streams: Number(inputs.streams),
    compute_speed: inputs.compute,
    buckets: bucketsText(inputs),
    sweep: true,
    settings: true,
  };
  if (inputs.model === ownModel && own !== null) {
    question.profile = own.profile;
  } else {
    question.model = inputs.model;
  }
  if (inputs.machine === ownCosts && own?.fitted) {
    question.fitted = own.fitted;
  } else {
    question.machine = machineText(inputs);
    question.algorithm = inputs.algorithm;
  }
  if (inputs.machine !== flat) {
    question.bandwidth = inputs.bandwidth;
    question.latency = inputs.latency;
  }
  return question;
}

/** What to type for the same numbers; null if the files' names are not known. */
export function commandsOf(inputs: Inputs, run: Run | undefined, redacted: boolean): { plan: string; simulate: string } | null {
  const quoted = (file: string): string => (/^[\w./@%+=:-]+$/.test(file) ? file : `'${file.replaceAll("'", "'\\''")}'`);
  if (inputs.model === ownModel && (redacted || run === undefined || run.files.length === 0)) {
    return null;
  }
  const what = inputs.model === ownModel ? run!.files.map(quoted).join(' ') : inputs.model;
  const flags: string[] = [];
  if (inputs.machine !== ownCosts) {
    flags.push(`--machine ${machineText(inputs)}`);
    if (inputs.algorithm !== 'auto') {
      flags.push(`--algorithm ${inputs.algorithm}`);
    }
  }
  const add = (name: string, value: string | number, usual: string | number): void => {
    if (value !== usual) {
      flags.push(`--${name} ${value}`);
    }
  };
  add('schedule', inputs.schedule, 'overlap');
  add('streams', inputs.streams, '1');
  add('compute-speed', inputs.compute, 1);
  if (inputs.machine !== flat) {
    add('bandwidth', inputs.bandwidth, 1);
    add('latency', inputs.latency, 1);
  }
  const all = [what, ...flags].join(' ');
  const buckets = inputs.buckets === 'planned' ? '' : ` --buckets ${bucketsText(inputs)}`;
  return { plan: `stretto plan ${all}`, simulate: `stretto simulate ${all}${buckets}` };
}

/** The controls; `changed` after each change, with what the address is to hold. */
export function inputPanel(inputs: Inputs, names: Names, state: State, changed: (key: keyof Inputs) => void): HTMLElement {
  const words = state.texts.whatIf;
  const own = ownOf(state.run);
  const set = <K extends keyof Inputs>(key: K, value: Inputs[K]): void => {
    inputs[key] = value;
    changed(key);
    refresh();
  };
  const over = (key: 'ranks' | 'gbits' | 'us' | 'bandwidth' | 'latency' | 'compute' | 'cap', label: string, values: number[], say: (value: number) => string): Control =>
    slider(label, values.length, nearest(values, inputs[key]), (i) => say(values[i]!), (i) => set(key, values[i]!));
  const models: [string, string][] = names.models.filter(({ name }) => !slowModels.includes(name)).map(({ name, title }) => [name, title]);
  if (own !== null) {
    models.unshift([ownModel, words.ownModel(state.run?.name.slice(0, 40) ?? '')]);
  }
  const machines: [string, string][] = [[flat, words.flat], ...names.machines.map((name): [string, string] => [name, name])];
  if (own?.fitted) {
    machines.unshift([ownCosts, words.ownCosts]);
  }
  const times = (value: number): string => `× ${value}`;
  const model = choice(words.model, models, inputs.model, (value) => set('model', value));
  const machine = choice(words.machine, machines, inputs.machine, (value) => set('machine', value));
  const ranks = over('ranks', words.ranks, rankCounts, String);
  const gbits = over('gbits', words.bandwidth, rates, (value) => `${value} Gbit/s`);
  const us = over('us', words.latency, latencies, (value) => `${value} µs`);
  const bandwidth = over('bandwidth', words.bandwidth, factors, times);
  const latency = over('latency', words.latency, factors, times);
  const compute = over('compute', words.computeSpeed, factors, times);
  const buckets = choice(words.buckets, [['planned', words.planned], ['ddp', words.ddp], ['size', words.size]], inputs.buckets, (value) => set('buckets', value));
  const cap = over('cap', words.cap, caps, bytes);
  const algorithm = choice(words.algorithm, ['auto', 'ring', 'halving_doubling', 'hierarchical', 'parameter_server'].map((name) => [name, name]), inputs.algorithm, (value) => set('algorithm', value));
  const schedule = choice(words.schedule, Object.entries(words.schedules), inputs.schedule, (value) => set('schedule', value));
  const stream = choice(words.streams, streams.map((name) => [name, name === '0' ? words.allStreams : name]), inputs.streams, (value) => set('streams', value));
  const refresh = (): void => {
    if (inputs.machine === ownCosts && inputs.model !== ownModel) {
      inputs.machine = flat;
    }
    machine.input.value = inputs.machine;
    for (const option of machine.input.querySelectorAll<HTMLOptionElement>(`option[value="${ownCosts}"]`)) {
      option.disabled = inputs.model !== ownModel;
    }
    for (const control of [ranks, gbits, us]) {
      control.show(inputs.machine === flat);
    }
    for (const control of [bandwidth, latency]) {
      control.show(inputs.machine !== flat);
    }
    algorithm.show(inputs.machine !== ownCosts);
    cap.show(inputs.buckets === 'size');
  };
  refresh();
  const group = (title: string, ...controls: Control[]): HTMLElement =>
    h('fieldset', {}, h('legend', {}, title), ...controls.map((control) => control.element));
  return h(
    'form',
    { class: 'panel', 'aria-label': words.title, onsubmit: (event: Event) => event.preventDefault() },
    group(words.stepGroup, model, compute),
    group(words.machineGroup, machine, ranks, gbits, us, bandwidth, latency, algorithm),
    group(words.planGroup, buckets, cap, schedule, stream),
  );
}
