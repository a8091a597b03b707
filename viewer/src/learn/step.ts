// SPDX-License-Identifier: Apache-2.0
// The step that the four cameras look at: layers that are all alike, as in the restaurant's example, and what the
// simulator says becomes of them.

import { unpack, type Row } from '../columns';
import type { Answer, Model } from '../model';

export interface Knobs {
  layers: number;
  /** Layers in a bucket. */
  bucket: number;
  latencyUs: number;
  gbits: number;
  ranks: number;
  overlap: boolean;
  slow: boolean;
}

export const layerBytes = 4 << 20;
const forwardS = 2e-3;
const backwardS = 4e-3;
/** Of the slow rank, relative to the others. */
export const slowSpeed = 0.7;

export interface BucketTimes {
  layers: number[];
  bytes: number;
  ready: number;
  start: number;
  end: number;
}

export interface Step {
  knobs: Knobs;
  answer: Answer;
  /** Of the same gradients, one bucket after the backward pass. */
  serial_s: number;
  length: number;
  forwardEnd: number;
  /** When layer i's gradient is ready on the ordinary ranks, and on the slowest. */
  ready: number[];
  readySlowest: number[];
  buckets: BucketTimes[];
  /** All moments at which something begins or ends. */
  moments: number[];
  compute: { begin: number; end: number; layer: number; forward: boolean }[];
}

export function profileOf(layers: number): object {
  const forward = Array.from({ length: layers }, (_, i) => ({ name: `layer${i}`, forward_s: forwardS }));
  const forwardEnd = layers * forwardS;
  const tensors = Array.from({ length: layers }, (_, i) => ({
    name: `layer${layers - 1 - i}.weight`,
    dtype: 'f32',
    shape: [layerBytes / 4],
    ready_s: forwardEnd + (i + 1) * backwardS,
  }));
  const end = forwardEnd + layers * backwardS;
  return {
    schema: 'stretto.step_profile/1', model: 'layers all alike', batch: 32, basis: 'assumed',
    assumptions: '4 MiB per layer, 2 ms forward and 4 ms backward each; no optimizer', beside_communication: false,
    forward_end_s: forwardEnd, backward_end_s: end, compute_end_s: end, forward, tensors,
  };
}

export const machineOf = (knobs: Knobs): string => `${knobs.ranks}@${knobs.gbits}Gbit/s,${knobs.latencyUs}us`;

export function simulateStep(model: Model, knobs: Knobs): Step {
  const profile = profileOf(knobs.layers);
  const question = {
    profile,
    machine: machineOf(knobs),
    algorithm: 'ring',
    schedule: knobs.overlap ? 'overlap' : 'serial',
    buckets: String(knobs.bucket * layerBytes),
    sweep: true,
    ...(knobs.slow ? { rank_speed: { rank: knobs.ranks - 1, speed: slowSpeed } } : {}),
  };
  const answer = model.whatIf(question);
  const stretch = knobs.slow ? 1 / slowSpeed : 1;
  const forwardEnd = knobs.layers * forwardS;
  const ready = Array.from({ length: knobs.layers }, (_, layer) => forwardEnd + (knobs.layers - layer) * backwardS);
  let next = knobs.layers - 1;
  const buckets = answer.summary.buckets.map((bucket) => {
    const count = Math.round(bucket.bytes / layerBytes);
    const layers = Array.from({ length: count }, (_, k) => next - k);
    next -= count;
    return { layers, bytes: bucket.bytes, ready: bucket.ready_s ?? bucket.launched_s, start: bucket.started_s, end: bucket.ended_s };
  });
  const first: Row | undefined = unpack(answer.timeline).ranks[0]?.rows.find((row) => row.band === 'compute');
  const compute: Step['compute'] = [];
  for (let i = 0; i < (first?.count ?? 0); i++) {
    const forward = answer.timeline.kinds[first!.what[i]!]?.[0] === 'forward';
    const before = compute.filter((each) => each.forward === forward).length;
    compute.push({ begin: first!.begin[i]! * 1e-9, end: first!.end[i]! * 1e-9, layer: forward ? before : knobs.layers - 1 - before, forward });
  }
  const moments = [...new Set([0, forwardEnd, ...ready, ...buckets.flatMap((b) => [b.start, b.end]), answer.step_s].map((t) => Number(t.toFixed(9))))].sort((a, b) => a - b);
  return {
    knobs,
    answer,
    serial_s: answer.plan.alternatives.find(({ schedule }) => schedule === 'serial')?.step_s ?? answer.step_s,
    length: answer.step_s,
    forwardEnd,
    ready,
    readySlowest: ready.map((t) => t * stretch),
    buckets,
    moments,
    compute,
  };
}

/** The chunks of a ring after so many of its 2(P - 1) steps: [rank][chunk] = how many ranks are in the sum. */
export function ringState(ranks: number, steps: number): number[][] {
  const state = Array.from({ length: ranks }, () => new Array<number>(ranks).fill(1));
  const modulo = (n: number): number => ((n % ranks) + ranks) % ranks;
  for (let s = 0; s < steps; s++) {
    const scatter = s < ranks - 1;
    const sent = state.map((row, r) => row[modulo(scatter ? r - s : r + 1 - (s - (ranks - 1)))]!);
    sent.forEach((value, r) => {
      const chunk = modulo(scatter ? r - s : r + 1 - (s - (ranks - 1)));
      const to = state[modulo(r + 1)]!;
      to[chunk] = scatter ? to[chunk]! + value : value;
    });
  }
  return state;
}

/** Which chunk rank r sends in step s. */
export const chunkSent = (ranks: number, r: number, s: number): number => {
  const at = s < ranks - 1 ? r - s : r + 1 - (s - (ranks - 1));
  return ((at % ranks) + ranks) % ranks;
};
