// SPDX-License-Identifier: Apache-2.0
import { h } from '../dom';
import { timeNs } from '../format';
import type { State } from '../state';
import { Picture } from '../timeline/picture';

export function timelinePage(state: State): HTMLElement {
  const words = state.texts;
  const { run } = state;
  const page = h('article', { class: 'timeline' }, h('h1', {}, words.pages.timeline));
  if (run === undefined) {
    page.append(h('p', {}, words.onlySummaries));
  } else if (state.timeline(run).bars === 0) {
    page.append(h('p', {}, words.timelineEmpty));
  } else {
    page.append(new Picture(words, state.timeline(run), state).element);
    const left = run.timeline.left_out;
    for (const [count, text] of [
      [left.merged, words.merged(left.merged, timeNs(left.gap_ns))],
      [left.host_rows, words.hostLeftOut(left.host_rows)],
      [left.crowded, words.crowded(left.crowded)],
    ] as [number, string][]) {
      if (count > 0) {
        page.append(h('p', { class: 'aside' }, text));
      }
    }
  }
  return page;
}
