// SPDX-License-Identifier: Apache-2.0
// The picture, as a pure function of the window. Per row and pixel at most one bar is drawn, so a frame costs
// rows times pixels, however many bars there are.

import { filled, firstAfter, type Row, type Spans, type Timeline } from '../columns';
import type { Block, Lane, Layout } from './layout';
import type { Painter, Palette } from './painter';

/** What is looked at: times in ns, `scroll` in pixels. */
export interface View {
  from: number;
  to: number;
  scroll: number;
  width: number;
  height: number;
  gutter: number;
}

/** A bar: lane and index. */
export interface Hit {
  lane: Lane;
  index: number;
}

export const axisHeight = 22;

export const xOf = (view: View, at: number): number =>
  view.gutter + ((at - view.from) / (view.to - view.from)) * (view.width - view.gutter);
export const timeAt = (view: View, x: number): number =>
  view.from + ((x - view.gutter) / (view.width - view.gutter)) * (view.to - view.from);

/** Bars narrower than a pixel are drawn together, as dense as they fill it. */
function eachPiece(
  spans: Spans | Row,
  view: View,
  whole: (index: number, x: number, width: number) => void,
  dense: (index: number, x: number, share: number) => void,
): void {
  const perPixel = (view.to - view.from) / (view.width - view.gutter);
  let i = firstAfter(spans, view.from);
  while (i < spans.count && spans.begin[i]! < view.to) {
    const begin = spans.begin[i]!;
    const end = spans.end[i]!;
    if (end - begin >= perPixel) {
      const x = Math.max(view.gutter, xOf(view, begin));
      whole(i, x, Math.max(1, Math.min(view.width, xOf(view, end)) - x));
      i++;
      continue;
    }
    const pixel = Math.floor((begin - view.from) / perPixel);
    const from = view.from + Math.max(0, pixel) * perPixel;
    const to = from + perPixel;
    // The next bar that reaches beyond this pixel, from here on in strides that double.
    let low = i + 1;
    let stride = 1;
    while (low + stride < spans.count && spans.end[low + stride - 1]! <= to) {
      low += stride;
      stride *= 2;
    }
    let high = Math.min(spans.count, low + stride);
    while (low < high) {
      const middle = (low + high) >> 1;
      if (spans.end[middle]! > to) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    dense(i, xOf(view, from), Math.min(1, filled(spans, i, low, from, to) / perPixel));
    // A bar that begins in this pixel and is wider than one is drawn next, from its begin.
    i = Math.max(low, i + 1);
  }
}

export function colorOf(timeline: Timeline, row: Row, index: number, colors: Palette): string {
  const kind = timeline.packed.kinds[row.what[index]!]?.[0] ?? 'compute';
  return (colors as unknown as Record<string, string>)[kind] ?? colors.compute;
}

export const nameOf = (timeline: Timeline, row: Row, index: number): string =>
  timeline.packed.names[timeline.packed.kinds[row.what[index]!]?.[1] ?? -1] ?? '?';

function drawLane(painter: Painter, timeline: Timeline, lane: Lane, view: View, colors: Palette): void {
  const top = lane.top - view.scroll + axisHeight;
  eachPiece(
    lane.row,
    view,
    (index, x, width) => {
      painter.rect(x, top, Math.max(1, width - 0.5), lane.height, colorOf(timeline, lane.row, index, colors));
      if (width > 40 && lane.height > 10 && lane.row.band !== 'wait') {
        painter.text(x + 3, top + lane.height / 2 + 0.5, nameOf(timeline, lane.row, index), colors.background, 'left', width - 6);
      }
    },
    (index, x, share) => painter.rect(x, top, 1, lane.height, colorOf(timeline, lane.row, index, colors), Math.max(0.25, share)),
  );
}

function drawExposed(painter: Painter, block: Block, view: View): void {
  if (block.exposed === null) {
    return;
  }
  const top = block.exposed.top - view.scroll + axisHeight;
  const { height } = block.exposed;
  eachPiece(
    block.rank.exposed,
    view,
    (_, x, width) => painter.hatch(x, top, width, height),
    (_, x) => painter.hatch(x, top, 1, height),
  );
}

/** The largest of 1, 2, 5 times a power of ten that leaves room for labels. */
function tick(view: View): number {
  const least = ((view.to - view.from) * 100) / (view.width - view.gutter);
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least) ?? 10 * power;
}

/** With as many digits as tell two neighbours apart. */
export function axisLabel(atNs: number, stepNs: number): string {
  if (atNs === 0) {
    return '0';
  }
  const [unit, ns] = ([['s', 1e9], ['ms', 1e6], ['µs', 1e3], ['ns', 1]] as const).find(([, size]) => atNs >= size) ?? ['ns', 1];
  const digits = Math.max(0, Math.ceil(-Math.log10(stepNs / ns) - 1e-9));
  return `${(atNs / ns).toFixed(Math.min(9, digits))} ${unit}`;
}

function drawAxis(painter: Painter, view: View, colors: Palette): void {
  painter.rect(0, 0, view.width, axisHeight, colors.background);
  const step = tick(view);
  for (let at = Math.ceil(view.from / step) * step; at <= view.to; at += step) {
    const x = xOf(view, at);
    painter.line(x, axisHeight - 5, x, axisHeight, colors.faint);
    if (x < view.width - 70) {
      painter.text(x + 3, axisHeight / 2, axisLabel(at, step), colors.faint, 'left');
    }
  }
}

export interface Marks {
  selected: Hit | null;
  /** The same bucket of the same step, on all ranks. */
  bucket: { bucket: number; step: number } | null;
  area: { from: number; to: number } | null;
  rankWord: string;
}

function drawMarks(painter: Painter, block: Block, view: View, marks: Marks, colors: Palette): void {
  for (const lane of block.lanes) {
    const { row } = lane;
    const top = lane.top - view.scroll + axisHeight;
    const outline = (i: number): void => {
      const x = Math.max(view.gutter, xOf(view, row.begin[i]!));
      const end = Math.min(view.width, xOf(view, row.end[i]!));
      if (end >= view.gutter && x <= view.width) {
        painter.outline(x, top, Math.max(3, end - x), lane.height, colors.selected);
      }
    };
    if (marks.selected !== null && marks.selected.lane.row === row) {
      outline(marks.selected.index);
    }
    if (marks.bucket === null || row.band !== 'communication') {
      continue;
    }
    const last = firstAfter(row, view.to);
    for (let i = firstAfter(row, view.from); i <= last && i < row.count; i++) {
      if (row.bucket[i] !== marks.bucket.bucket || (marks.bucket.step >= 0 && row.step[i] !== marks.bucket.step)) {
        continue;
      }
      outline(i);
      // From the gradients that were complete, to the communication they went into.
      const ready = row.ready[i]! >= 0 ? row.ready[i]! : row.launched[i]!;
      if (ready >= 0) {
        const from = xOf(view, ready);
        painter.line(from, block.top - view.scroll + axisHeight, from, top + lane.height / 2, colors.selected);
        painter.line(from, top + lane.height / 2, xOf(view, row.begin[i]!), top + lane.height / 2, colors.selected);
      }
    }
  }
}

export function draw(painter: Painter, timeline: Timeline, layout: Layout, view: View, marks: Marks, colors: Palette): void {
  painter.rect(0, 0, view.width, view.height, colors.background);
  for (const step of timeline.packed.steps) {
    const x = xOf(view, step.begin_ns);
    if (x >= view.gutter && x <= view.width) {
      painter.line(x, axisHeight, x, view.height, colors.line);
    }
  }
  for (const block of layout.blocks) {
    const top = block.top - view.scroll + axisHeight;
    if (top > view.height || top + block.height < axisHeight) {
      continue;
    }
    for (const lane of block.lanes) {
      drawLane(painter, timeline, lane, view, colors);
    }
    drawExposed(painter, block, view);
    if (marks.bucket !== null || marks.selected !== null) {
      drawMarks(painter, block, view, marks, colors);
    }
    painter.rect(0, top - 2, view.gutter, block.height + 4, colors.background);
    painter.text(view.gutter - 6, top + 9, `${marks.rankWord} ${block.rank.rank}`, colors.text, 'right', view.gutter - 8);
  }
  if (marks.area !== null) {
    const x = Math.max(view.gutter, xOf(view, marks.area.from));
    const end = Math.min(view.width, xOf(view, marks.area.to));
    if (end > x) {
      painter.rect(x, axisHeight, end - x, view.height, colors.text, 0.12);
      painter.line(x, axisHeight, x, view.height, colors.text);
      painter.line(end, axisHeight, end, view.height, colors.text);
    }
  }
  drawAxis(painter, view, colors);
}

/** The bar at a point, or the nearest within two pixels of it. */
export function hitAt(layout: Layout, view: View, x: number, y: number): Hit | null {
  const at = timeAt(view, x);
  const slack = (2 * (view.to - view.from)) / (view.width - view.gutter);
  const below = y + view.scroll - axisHeight;
  if (x < view.gutter || y < axisHeight) {
    return null;
  }
  for (const block of layout.blocks) {
    if (below < block.top || below > block.top + block.height) {
      continue;
    }
    for (const lane of block.lanes) {
      if (below < lane.top || below > lane.top + lane.height) {
        continue;
      }
      const index = firstAfter(lane.row, at - slack);
      if (index < lane.row.count && lane.row.begin[index]! <= at + slack) {
        return { lane, index };
      }
    }
  }
  return null;
}

/** All ranks in one strip: how much of them computes, and where communication is exposed. */
export function drawMinimap(painter: Painter, timeline: Timeline, view: View, colors: Palette): void {
  const pixels = Math.floor(view.width);
  const per = timeline.length / pixels;
  const rows = timeline.ranks.flatMap((rank) => rank.rows.filter((row) => row.band === 'compute'));
  painter.rect(0, 0, view.width, view.height, colors.background);
  const share = (spans: (Row | Spans)[], pixel: number): number => {
    let sum = 0;
    for (const each of spans) {
      const from = pixel * per;
      sum += filled(each, firstAfter(each, from), firstAfter(each, from + per), from, from + per);
    }
    return spans.length === 0 ? 0 : sum / per / spans.length;
  };
  const exposed = timeline.ranks.map((rank) => rank.exposed);
  for (let pixel = 0; pixel < pixels; pixel++) {
    const busy = Math.min(1, share(rows, pixel));
    const bare = Math.min(1, share(exposed, pixel));
    const half = view.height / 2;
    painter.rect(pixel, half * (1 - busy), 1, half * busy, colors.compute);
    painter.rect(pixel, half + 1, 1, (half - 1) * bare, colors.exposed);
  }
}
