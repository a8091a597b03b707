// SPDX-License-Identifier: Apache-2.0
// Where each row stands, from the top of the first rank.

import type { Rank, Row, Timeline } from '../columns';

export interface Lane {
  top: number;
  height: number;
  rank: Rank;
  row: Row;
}

export interface Block {
  top: number;
  height: number;
  rank: Rank;
  lanes: Lane[];
  /** The strip in which exposed communication is hatched; absent if there is no communication. */
  exposed: { top: number; height: number } | null;
}

export interface Layout {
  blocks: Block[];
  height: number;
}

const rowHeight = { compute: 16, wait: 16, communication: 16, copy: 8 } as const;
const stripHeight = 8;
const gap = 12;
/** Few rows are drawn taller, up to twice, until the picture has this height. */
const pleasantHeight = 300;

export function layoutOf(timeline: Timeline): Layout {
  const once = layoutScaled(timeline, 1);
  const scale = Math.min(2, Math.max(1, pleasantHeight / once.height));
  return scale > 1 ? layoutScaled(timeline, scale) : once;
}

function layoutScaled(timeline: Timeline, scale: number): Layout {
  const blocks: Block[] = [];
  let top = 4;
  for (const rank of timeline.ranks) {
    const lanes: Lane[] = [];
    const first = top;
    let exposed: Block['exposed'] = null;
    for (const band of ['compute', 'wait', 'communication', 'copy'] as const) {
      const rows = rank.rows.filter((row) => row.band === band);
      for (const row of rows) {
        const height = Math.round(rowHeight[band] * scale);
        if (band === 'wait' && lanes.length > 0) {
          // A thread that waits does not compute: one row shows both.
          lanes.push({ top: first, height, rank, row });
          continue;
        }
        lanes.push({ top, height, rank, row });
        top += height + 1;
      }
      if (band === 'communication' && rows.length > 0) {
        exposed = { top, height: Math.round(stripHeight * scale) };
        top += exposed.height + 1;
      }
    }
    top = Math.max(top, first + 18);
    blocks.push({ top: first, height: top - first, rank, lanes, exposed });
    top += gap;
  }
  return { blocks, height: top };
}
