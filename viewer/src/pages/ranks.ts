// SPDX-License-Identifier: Apache-2.0
import type { Run, StepRow } from '../data';
import { foreign, h, table } from '../dom';
import { bytes, or, time } from '../format';
import type { State } from '../state';
import { svg } from '../svg';
import { legend, partBars, partsOf } from './overview';

const mostBars = 64;
const mostCells = 4000;
/** Of a StepRow. */
const shown = { exposed: 6, compute: 4, length: 3 } as const;

function heatMap(rows: StepRow[], column: number, state: State): HTMLElement {
  const words = state.texts;
  const ranks = [...new Set(rows.map((row) => row[1]))].sort((a, b) => a - b);
  const all = [...new Set(rows.map((row) => row[0]))].sort((a, b) => a - b);
  const steps = all.slice(0, Math.max(1, Math.floor(mostCells / ranks.length)));
  const last = steps.at(-1) ?? 0;
  const cells = rows.filter((row) => row[0] <= last);
  const values = cells.map((row) => row[column]!);
  const low = values.reduce((a, b) => Math.min(a, b), Infinity);
  const high = values.reduce((a, b) => Math.max(a, b), 0);
  const size = 16;
  const figure = svg('svg', {
    class: 'heat',
    viewBox: `-34 -2 ${steps.length * size + 36} ${ranks.length * size + 22}`,
    width: (steps.length * size + 36) * 1.25,
    height: (ranks.length * size + 22) * 1.25,
    role: 'img',
    'aria-label': words.heatLabel(ranks.length, steps.length),
  });
  for (const row of cells) {
    const value = row[column]!;
    const cell = svg('rect', {
      class: 'cell',
      x: steps.indexOf(row[0]) * size,
      y: ranks.indexOf(row[1]) * size,
      width: size - 1,
      height: size - 1,
      // From faint to full; never nothing, for the cell is there.
      'fill-opacity': (0.08 + (high > low ? (0.92 * (value - low)) / (high - low) : 0)).toFixed(3),
    });
    const title = svg('title', {});
    title.textContent = words.heatCell(row[1], row[0], time(value));
    cell.append(title);
    figure.append(cell);
  }
  ranks.forEach((rank, i) => {
    if (ranks.length <= 32 || i % 8 === 0) {
      const text = svg('text', { x: -6, y: i * size + 12, 'text-anchor': 'end' });
      text.textContent = String(rank);
      figure.append(text);
    }
  });
  const every = Math.max(1, Math.ceil(steps.length / 10));
  steps.forEach((step, i) => {
    if (i % every === 0) {
      const text = svg('text', { x: i * size, y: ranks.length * size + 14 });
      text.textContent = String(step);
      figure.append(text);
    }
  });
  return h(
    'div',
    {},
    h('p', { class: 'aside' }, words.heatScale(time(low), time(high))),
    h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': words.heatMap }, figure as unknown as HTMLElement),
  );
}

function heatSection(run: Run, state: State): HTMLElement {
  const words = state.texts;
  const section = h('section', {}, h('h2', {}, words.heatMap));
  const place = h('div', {});
  const select = h('select', {});
  for (const key of Object.keys(shown) as (keyof typeof shown)[]) {
    select.append(h('option', { value: key }, words.heatValues[key]));
  }
  const draw = (): void => {
    place.replaceChildren(heatMap(run.steps.rows, shown[select.value as keyof typeof shown], state));
  };
  select.addEventListener('change', draw);
  draw();
  section.append(h('label', {}, `${words.heatValue} `, select), place);
  if (run.steps.left_out > 0) {
    section.append(h('p', { class: 'aside' }, words.stepsLeftOut(run.steps.left_out)));
  }
  return section;
}

export function ranksPage(state: State): HTMLElement {
  const words = state.texts;
  const { run } = state;
  const page = h('article', {}, h('h1', {}, words.pages.ranks));
  const summary = run?.explanation.summary ?? null;
  if (run === undefined || summary === null || summary.per_rank.length === 0) {
    page.append(h('p', {}, words.ranksNone));
  } else {
    page.append(
      h('section', {}, h('h2', {}, words.ranksBars), legend(words), partBars(summary.per_rank.slice(0, mostBars), words)),
      table(
        words.ranksBars,
        words.rankColumns,
        summary.per_rank.map((rank) => {
          const parts = partsOf(rank);
          return [
            String(rank.rank),
            ...[rank.step_s, rank.compute_s, rank.communication_s, parts.hidden, parts.exposed, parts.idle].map(time),
          ];
        }),
      ),
    );
    if (run.steps.rows.length > 1) {
      page.append(heatSection(run, state));
    }
  }
  if (run !== undefined) {
    const { stragglers, collectives, matched } = run.explanation;
    if (stragglers.length > 0) {
      page.append(
        h('section', {}, h('h2', {}, words.waiting),
          table(
            words.waiting,
            words.waitingColumns,
            stragglers.map((rank) => [
              String(rank.rank),
              time(rank.waited_s),
              words.ofMatched(rank.last, matched),
              time(rank.made_others_wait_s),
            ]),
          )),
      );
    }
    if (collectives.length > 0) {
      page.append(
        h('section', {}, h('h2', {}, words.collectives),
          table(
            words.collectives,
            words.collectiveColumns,
            collectives.slice(0, 200).map((kind) => [
              foreign(kind.collective === 'none' ? kind.name : kind.collective),
              foreign(kind.group ?? '?'),
              bytes(kind.bytes),
              String(kind.count),
              time(kind.total_s),
              time(kind.median_s),
              time(kind.p90_s),
              (kind.matched ? '' : '≤ ') + time(kind.transfer_s),
              or(kind.busbw_bytes_per_s, (rate) => `${(rate / 1e9).toPrecision(3)} GB/s`),
            ]),
            2,
          )),
      );
    }
  }
  return page;
}
