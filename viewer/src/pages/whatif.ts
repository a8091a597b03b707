// SPDX-License-Identifier: Apache-2.0
// The planner itself, in the page: change an input and see the step that follows.

import { unpack } from '../columns';
import { command, foreign, h, table } from '../dom';
import { bytes, or, percent, time } from '../format';
import { loadModel, Refused, type Answer, type Model } from '../model';
import type { State } from '../state';
import { nowhere, Picture } from '../timeline/picture';
import { curve } from '../whatif/curve';
import { commandsOf, initial, inputPanel, ownModel, questionOf, type Inputs } from '../whatif/inputs';

const mostBucketRows = 40;
/** Of a packed timeline: more takes longer to draw than it tells. */
const pause = 60;

function cards(answer: Answer, state: State): HTMLElement {
  const words = state.texts;
  const { plan, summary } = answer;
  const optimum = plan.optimum_s ?? plan.predicted_step_s;
  const rows: [string, string, string, string?][] = [
    [words.exposed, or(summary.exposed_s, time), words.exposedFormula, 'strong'],
    [words.step, time(answer.step_s), answer.steady ? words.whatIf.compute(time(plan.compute_s)) : words.whatIf.notSteady],
    [words.whatIf.best, time(optimum), plan.optimum_is_exact ? words.whatIf.exact : words.whatIf.notExact],
    [words.bound, time(plan.bound_s), words.boundFormula(percent(answer.step_s / plan.bound_s - 1))],
    [words.hiddenRatio, or(summary.hidden_ratio, percent), words.hiddenFormula],
    [words.whatIf.samples, or(summary.samples_per_s, (value) => value.toPrecision(4)), words.whatIf.allRanks(answer.ranks)],
  ];
  return h(
    'dl',
    { class: 'cards' },
    ...rows.map(([name, value, note, kind]) => h('div', { class: kind ?? null }, h('dt', {}, name), h('dd', {}, value, h('small', {}, note)))),
  );
}

/** Compute, and what comes on top of it, for this and the usual ways to cut. */
function race(answer: Answer, state: State): HTMLElement {
  const words = state.texts;
  const { plan } = answer;
  const rows: [string, number, string?][] = [
    [words.whatIf.here, answer.step_s, 'now'],
    [words.whatIf.best, plan.predicted_step_s],
    ...plan.alternatives.map(({ name, step_s }): [string, number] => [words.whatIf.alternatives(name), step_s]),
    [words.bound, plan.bound_s],
  ];
  const longest = Math.max(...rows.map(([, step]) => step));
  return h(
    'ul',
    { class: 'bars race' },
    ...rows.map(([name, step, kind]) => {
      const compute = h('span', { class: 'compute' });
      compute.style.setProperty('width', `${(100 * Math.min(step, plan.compute_s)) / longest}%`);
      const exposed = h('span', { class: 'exposed' });
      exposed.style.setProperty('width', `${(100 * Math.max(0, step - plan.compute_s)) / longest}%`);
      return h(
        'li',
        { class: kind ?? null },
        h('span', { class: 'who' }, name),
        h('span', { class: 'parts', 'aria-hidden': 'true' }, compute, exposed),
        h('span', { class: 'value' }, time(step)),
      );
    }),
  );
}

function bucketTable(answer: Answer, state: State): HTMLElement {
  const words = state.texts.whatIf;
  const { buckets } = answer.plan;
  return h(
    'details',
    {},
    h('summary', {}, words.bestBuckets(buckets.length)),
    table(
      words.bestBuckets(buckets.length),
      words.bucketColumns,
      buckets.slice(0, mostBucketRows).map((bucket, i) => [
        String(i),
        bytes(bucket.bytes),
        String(bucket.tensors),
        time(bucket.ready_s),
        time(bucket.begin_s),
        time(bucket.end_s),
        bucket.algorithm,
        h('span', { class: 'words' }, foreign(bucket.last_tensor)),
      ]),
      1,
      7,
    ),
    buckets.length > mostBucketRows ? h('p', { class: 'aside' }, state.texts.andMore(buckets.length - mostBucketRows)) : null,
    answer.settings === undefined ? null : h('div', {}, h('p', {}, state.texts.settings), command(answer.settings.trimEnd(), state.texts.copy, state.texts.copied)),
  );
}

function commands(inputs: Inputs, state: State): HTMLElement {
  const words = state.texts;
  const both = commandsOf(inputs, state.run, state.report.redacted);
  return h(
    'section',
    { class: 'commands' },
    h('h2', {}, words.whatIf.commands),
    ...(both === null
      ? [h('p', {}, words.whatIf.noCommand)]
      : [command(both.simulate, words.copy, words.copied), command(both.plan, words.copy, words.copied)]),
  );
}

function sentence(answer: Answer, inputs: Inputs, state: State): string {
  const words = state.texts.whatIf;
  const parts = [words.sentence(time(answer.step_s), time(answer.summary.exposed_s ?? 0), time(answer.plan.predicted_step_s))];
  const recorded = state.run?.explanation.summary;
  if (inputs.model === ownModel && recorded) {
    parts.push(words.recorded(time(recorded.step_s), or(recorded.exposed_s, time)));
  }
  return parts.join(' ');
}

function results(answer: Answer, inputs: Inputs, state: State): HTMLElement[] {
  const words = state.texts;
  const caps = answer.sweep ?? [];
  return [
    h('p', { class: 'verdict', 'aria-live': 'polite' }, sentence(answer, inputs, state)),
    cards(answer, state),
    h('h2', {}, words.whatIf.compared),
    race(answer, state),
    ...(caps.length > 1
      ? [curve({ points: caps, best_s: answer.plan.predicted_step_s, bound_s: answer.plan.bound_s, cap: inputs.buckets === 'size' ? inputs.cap : null, step_s: answer.step_s }, words)]
      : []),
    h('h2', {}, words.whatIf.timeline),
    h('div', { class: 'compact' }, new Picture(words, unpack(answer.timeline), nowhere).element),
    bucketTable(answer, state),
    commands(inputs, state),
    h('p', { class: 'aside', lang: 'en' }, `${words.whatIf.assumed} `, foreign(answer.assumptions)),
  ];
}

function build(page: HTMLElement, model: Model, state: State): void {
  const inputs = initial(state);
  const place = h('div', { class: 'results' });
  let timer = 0;
  const run = (): void => {
    try {
      const open = place.querySelector('details')?.open ?? false;
      const answer = model.whatIf(questionOf(inputs, state.run));
      place.replaceChildren(...results(answer, inputs, state));
      const details = [...place.querySelectorAll('details')].at(-1);
      if (details) {
        details.open = open;
      }
    } catch (error) {
      const why = error instanceof Refused ? error.message : String(error);
      place.replaceChildren(h('p', { class: 'alert', role: 'alert' }, state.texts.whatIf.refused, ' ', h('span', { lang: 'en' }, foreign(why))));
    }
  };
  const panel = inputPanel(inputs, model.names(), state, (key) => {
    state.note(key, String(inputs[key]));
    clearTimeout(timer);
    timer = window.setTimeout(run, pause);
  });
  page.append(h('div', { class: 'workbench' }, panel, place));
  run();
}

export function whatIfPage(state: State): HTMLElement {
  const words = state.texts;
  const loading = h('p', { role: 'status' }, words.loading);
  const page = h('article', { class: 'whatif' }, h('h1', {}, words.whatIf.title), h('p', { class: 'lead' }, words.whatIf.lead), loading);
  loadModel().then(
    (model) => {
      loading.remove();
      build(page, model, state);
    },
    (error: unknown) => loading.replaceWith(h('p', { class: 'alert', role: 'alert' }, words.pageFailed(String(error)))),
  );
  return page;
}
