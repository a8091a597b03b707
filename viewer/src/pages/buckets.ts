// SPDX-License-Identifier: Apache-2.0
import type { Bucket, Summary } from '../data';
import { foreign, h, table } from '../dom';
import { bytes, or, time } from '../format';
import type { State } from '../state';
import { svg } from '../svg';

const mostDrawn = 60;

/** Ready, begin and end of each bucket on the step's axis. */
function picture(summary: Summary, state: State): HTMLElement {
  const words = state.texts;
  const buckets = summary.buckets.slice(0, mostDrawn);
  const end = Math.max(summary.step_s, ...buckets.map((bucket) => bucket.ended_s));
  const height = 18;
  const width = 1000;
  const x = (s: number): number => Math.min(width, Math.max(0, (width * s) / end));
  const figure = svg('svg', {
    class: 'gantt',
    viewBox: `-60 0 ${width + 64} ${height * buckets.length + 22}`,
    role: 'img',
    'aria-label': `${words.bucketsPicture}. ${words.bucketsHelp}`,
  });
  buckets.forEach((bucket, i) => {
    const top = i * height;
    const from = bucket.ready_s ?? bucket.launched_s;
    const title = svg('title', {});
    title.textContent = `${words.bucket} ${bucket.bucket}: ${time(bucket.started_s)} – ${time(bucket.ended_s)}`;
    const label = svg('text', { x: -8, y: top + 13, 'text-anchor': 'end' });
    label.textContent = String(bucket.bucket);
    const row = svg('g', {});
    row.append(
      title,
      label,
      svg('line', { class: 'queued', x1: x(from), x2: x(bucket.started_s), y1: top + 9, y2: top + 9 }),
      svg('circle', { class: 'ready', cx: x(from), cy: top + 9, r: 3 }),
      svg('rect', {
        class: 'hidden',
        x: x(bucket.started_s),
        y: top + 3,
        width: Math.max(1.5, x(bucket.ended_s) - x(bucket.started_s)),
        height: height - 6,
      }),
    );
    figure.append(row);
  });
  const axis = svg('text', { x: width, y: height * buckets.length + 16, 'text-anchor': 'end' });
  axis.textContent = time(end);
  figure.append(axis);
  return h(
    'figure',
    {},
    h('figcaption', {}, words.bucketsHelp),
    h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': words.bucketsPicture }, figure as unknown as HTMLElement),
  );
}

function row(bucket: Bucket, state: State): (string | Node)[] {
  const words = state.texts;
  const queued = bucket.ready_s === null ? null : Math.max(0, bucket.started_s - bucket.ready_s);
  return [
    h('a', { href: state.link('timeline', { b: String(bucket.bucket) }), 'aria-label': `${words.bucket} ${bucket.bucket}, ${words.show}` }, String(bucket.bucket)),
    bucket.collective,
    bytes(bucket.bytes),
    or(bucket.ready_s, time),
    or(queued, time),
    time(bucket.started_s),
    time(bucket.ended_s),
    time(bucket.transfer_s),
    or(bucket.compute_left_s, time),
    time(bucket.exposed_share_s),
    h('span', { class: 'words' }, words.waited[bucket.waited_for] ?? bucket.waited_for),
  ];
}

function plans(state: State): HTMLElement[] {
  const words = state.texts;
  return state.report.plans.map((plan) =>
    h(
      'section',
      {},
      h('h2', {}, `${words.plan} `, foreign(plan.name)),
      h('p', { class: 'aside' }, foreign(plan.origin), ` ${plan.hash}`),
      table(
        words.plan,
        words.planColumns,
        plan.buckets.map((bucket, i) => [
          String(i),
          bytes(bucket.bytes),
          bucket.algorithm,
          String(bucket.priority),
          h(
            'span',
            { class: 'words' },
            ...bucket.tensors.slice(0, 6).flatMap((name, k) => [k > 0 ? ', ' : '', foreign(name)]),
            bucket.tensor_count > 6 ? ` ${words.andMore(bucket.tensor_count - 6)}` : '',
          ),
        ]),
        1,
        4,
      ),
    ),
  );
}

export function bucketsPage(state: State): HTMLElement {
  const words = state.texts;
  const page = h('article', {}, h('h1', {}, words.pages.buckets));
  const summary = state.run?.explanation.summary ?? null;
  if (summary !== null && summary.buckets.length > 0) {
    page.append(
      picture(summary, state),
      table(words.pages.buckets, words.bucketColumns, summary.buckets.map((bucket) => row(bucket, state)), 2, 9),
    );
    if (summary.buckets.length > mostDrawn) {
      page.append(h('p', { class: 'aside' }, words.andMore(summary.buckets.length - mostDrawn)));
    }
  } else if (state.report.plans.length === 0) {
    page.append(h('p', {}, words.bucketsNone));
  }
  page.append(...plans(state));
  return page;
}
