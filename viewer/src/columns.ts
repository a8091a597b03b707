// SPDX-License-Identifier: Apache-2.0
// The packed rows of stretto/report/html_timeline.cpp: times in ns from the begin of the picture.

import type { PackedRow, PackedTimeline } from './data';

/** Bars of one row, by time; none overlap. */
export interface Row {
  band: PackedRow['band'];
  device: number | null;
  count: number;
  begin: Float64Array;
  end: Float64Array;
  /** busy[i] = what the bars before i sum to. */
  busy: Float64Array;
  what: Uint32Array;
  records: Uint32Array;
  /** Of communication only, else empty. Unknown: 0 bytes, -1 for the others. */
  bytes: Float64Array;
  bucket: Int32Array;
  step: Int32Array;
  launched: Float64Array;
  ready: Float64Array;
}

export interface Spans {
  count: number;
  begin: Float64Array;
  end: Float64Array;
  busy: Float64Array;
}

export interface Rank {
  rank: number;
  rows: Row[];
  exposed: Spans;
}

export interface Timeline {
  packed: PackedTimeline;
  length: number;
  ranks: Rank[];
  bars: number;
}

class Reader {
  private at = 0;
  private readonly bytes: Uint8Array;

  constructor(base64: string) {
    const text = atob(base64);
    this.bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) {
      this.bytes[i] = text.charCodeAt(i);
    }
  }

  next(): number {
    let value = 0;
    let factor = 1;
    for (;;) {
      const byte = this.bytes[this.at++];
      if (byte === undefined) {
        throw new Error('a row of the timeline ends too early');
      }
      value += (byte & 127) * factor;
      if (byte < 128) {
        return value;
      }
      factor *= 128;
    }
  }
}

function unpackRow(packed: PackedRow): Row {
  const n = packed.count;
  const calls = packed.band === 'communication' ? n : 0;
  const row: Row = {
    band: packed.band,
    device: packed.device,
    count: n,
    begin: new Float64Array(n),
    end: new Float64Array(n),
    busy: new Float64Array(n + 1),
    what: new Uint32Array(n),
    records: new Uint32Array(n),
    bytes: new Float64Array(calls),
    bucket: new Int32Array(calls),
    step: new Int32Array(calls),
    launched: new Float64Array(calls),
    ready: new Float64Array(calls),
  };
  const reader = new Reader(packed.data);
  let at = 0;
  for (let i = 0; i < n; i++) {
    at += reader.next();
    const length = reader.next();
    row.begin[i] = at;
    row.end[i] = at + length;
    row.busy[i + 1] = row.busy[i]! + length;
    row.what[i] = reader.next();
    row.records[i] = reader.next();
    if (calls > 0) {
      row.bytes[i] = reader.next();
      row.bucket[i] = reader.next() - 1;
      row.step[i] = reader.next() - 1;
      row.launched[i] = before(at, reader.next());
      row.ready[i] = before(at, reader.next());
    }
  }
  return row;
}

const before = (at: number, distance: number): number => (distance === 0 ? -1 : at - (distance - 1));

function unpackSpans(packed: { count: number; data: string }): Spans {
  const n = packed.count;
  const spans: Spans = {
    count: n,
    begin: new Float64Array(n),
    end: new Float64Array(n),
    busy: new Float64Array(n + 1),
  };
  const reader = new Reader(packed.data);
  let at = 0;
  for (let i = 0; i < n; i++) {
    at += reader.next();
    const length = reader.next();
    spans.begin[i] = at;
    spans.end[i] = at + length;
    spans.busy[i + 1] = spans.busy[i]! + length;
  }
  return spans;
}

export function unpack(packed: PackedTimeline): Timeline {
  const ranks = packed.ranks.map((rank) => ({
    rank: rank.rank,
    rows: rank.rows.map(unpackRow),
    exposed: unpackSpans(rank.exposed),
  }));
  let bars = 0;
  for (const rank of ranks) {
    for (const row of rank.rows) {
      bars += row.count;
    }
  }
  return { packed, length: Math.max(1, packed.length_ns), ranks, bars };
}

/** Index of the first span that ends after `at`. */
export function firstAfter(spans: { count: number; end: Float64Array }, at: number): number {
  let low = 0;
  let high = spans.count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (spans.end[middle]! > at) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

/** How much of [from, to) the spans fill; `i` is firstAfter(spans, from), `j` firstAfter(spans, to). */
export function filled(spans: Spans | Row, i: number, j: number, from: number, to: number): number {
  let sum = spans.busy[j]! - spans.busy[i]!;
  if (i < j && spans.begin[i]! < from) {
    sum -= from - spans.begin[i]!;
  }
  if (j < spans.count && spans.begin[j]! < to) {
    sum += to - Math.max(from, spans.begin[j]!);
  }
  return sum;
}

export const filledBetween = (spans: Spans | Row, from: number, to: number): number =>
  filled(spans, firstAfter(spans, from), firstAfter(spans, to), from, to);

/** The same of several rows that may overlap each other: of their union. */
export function unionBetween(rows: Row[], from: number, to: number): number {
  const [only] = rows;
  if (only === undefined) {
    return 0;
  }
  if (rows.length === 1) {
    return filledBetween(only, from, to);
  }
  const next = rows.map((row) => firstAfter(row, from));
  let sum = 0;
  let covered = from;
  for (;;) {
    let which = -1;
    let begin = to;
    rows.forEach((row, r) => {
      const i = next[r]!;
      if (i < row.count && row.begin[i]! < begin) {
        begin = row.begin[i]!;
        which = r;
      }
    });
    if (which < 0) {
      return sum;
    }
    const end = Math.min(to, rows[which]!.end[next[which]!]!);
    next[which]!++;
    if (end > covered) {
      sum += end - Math.max(covered, begin);
      covered = end;
    }
  }
}
