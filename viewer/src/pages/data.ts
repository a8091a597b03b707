// SPDX-License-Identifier: Apache-2.0
import type { Bucket, RankNumbers } from '../data';
import { foreign, h } from '../dom';
import { csv, download } from '../download';
import { timeNs } from '../format';
import { hasModel } from '../model';
import type { State } from '../state';

const bucketKeys: (keyof Bucket)[] = [
  'bucket', 'collective', 'bytes', 'ready_s', 'launched_s', 'started_s', 'ended_s', 'exposed_s', 'exposed_share_s', 'transfer_s', 'compute_left_s', 'waited_for',
];
const rankKeys: (keyof RankNumbers)[] = ['rank', 'step_s', 'compute_s', 'communication_s', 'exposed_s'];

/** Of what is compiled into the page. */
function notices(state: State): HTMLElement | null {
  const text = document.getElementById('notices')?.textContent ?? '';
  return text === ''
    ? null
    : h('details', {}, h('summary', {}, state.texts.notices), h('pre', { lang: 'en', tabindex: 0, class: 'notices' }, text));
}

export function dataPage(state: State): HTMLElement {
  const words = state.texts;
  const { run, report } = state;
  const button = (text: string, save: () => void): HTMLElement => h('button', { type: 'button', onclick: save }, text);
  const buttons = h(
    'p',
    { class: 'buttons' },
    button(words.downloadJson, () => download('stretto-report.json', JSON.stringify(report), 'application/json')),
  );
  const summary = run?.explanation.summary ?? null;
  if (run !== undefined && summary !== null) {
    buttons.append(
      button(words.downloadBuckets, () =>
        download('buckets.csv', csv(bucketKeys, summary.buckets.map((bucket) => bucketKeys.map((key) => bucket[key]))), 'text/csv')),
      button(words.downloadRanks, () =>
        download('ranks.csv', csv(rankKeys, summary.per_rank.map((rank) => rankKeys.map((key) => rank[key]))), 'text/csv')),
      button(words.downloadSteps, () => download('steps.csv', csv(run.steps.columns, run.steps.rows), 'text/csv')),
    );
  }
  const notes = [...(hasModel() ? [] : [h('li', {}, words.withoutModel)]), ...(run?.notes ?? []).map((note) => h('li', { lang: 'en' }, foreign(note)))];
  if (run !== undefined) {
    const left = run.timeline.left_out;
    for (const [count, text] of [
      [left.merged, words.merged(left.merged, timeNs(left.gap_ns))],
      [left.host_rows, words.hostLeftOut(left.host_rows)],
      [left.crowded, words.crowded(left.crowded)],
      [run.steps.left_out, words.stepsLeftOut(run.steps.left_out)],
    ] as [number, string][]) {
      if (count > 0) {
        notes.push(h('li', {}, text));
      }
    }
  }
  return h(
    'article',
    {},
    h('h1', {}, words.pages.data),
    h('section', {}, h('h2', {}, words.downloads), buttons, h('p', { class: 'aside' }, words.openAnother)),
    h('section', {}, h('h2', {}, words.notes), notes.length > 0 ? h('ul', {}, ...notes) : h('p', {}, words.noNotes)),
    h(
      'section',
      {},
      h('h2', {}, words.formulas),
      h('dl', { class: 'formulas' }, ...words.formulaList.flatMap(([word, text]) => [h('dt', {}, word), h('dd', {}, text)])),
    ),
    h('section', {}, h('h2', {}, words.licence), h('p', {}, words.licenceText), notices(state)),
  );
}
