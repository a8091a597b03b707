// SPDX-License-Identifier: Apache-2.0
import { h } from '../dom';
import { algorithmsByRanks, misconceptions, parallelism, rankOrder } from '../learn/compare';
import { compression } from '../learn/compression';
import { demo } from '../learn/demo';
import { loadModel } from '../model';
import type { State } from '../state';
import { svg } from '../svg';

/** What exposed time is filled with, here as on the other pages. */
function stripes(): HTMLElement {
  const root = svg('svg', { width: 0, height: 0, class: 'unseen', 'aria-hidden': 'true' });
  const pattern = svg('pattern', { id: 'stripes', width: 6, height: 6, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' });
  pattern.append(svg('rect', { width: 6, height: 6, class: 'exposed' }), svg('rect', { width: 2, height: 6, class: 'stripe' }));
  root.append(pattern);
  return root as unknown as HTMLElement;
}

export function learnPage(state: State): HTMLElement {
  const words = state.texts;
  const loading = h('p', { role: 'status' }, words.loading);
  const page = h('article', { class: 'learn' }, h('h1', {}, words.learn.title), loading);
  loadModel().then(
    (model) => {
      loading.remove();
      page.append(
        stripes(),
        demo(model, state),
        compression(model, state),
        algorithmsByRanks(model, state),
        rankOrder(model, state),
        parallelism(model, state),
        misconceptions(state),
      );
    },
    (error: unknown) => loading.replaceWith(h('p', { class: 'alert', role: 'alert' }, words.pageFailed(String(error)))),
  );
  return page;
}
