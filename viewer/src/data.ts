// SPDX-License-Identifier: Apache-2.0
// What stretto/report/html.cpp writes into the page.

export interface Bucket {
  bucket: number;
  collective: string;
  bytes: number;
  ready_s: number | null;
  launched_s: number;
  started_s: number;
  ended_s: number;
  exposed_s: number;
  exposed_share_s: number;
  transfer_s: number;
  compute_left_s: number | null;
  waited_for: string;
}

export interface RankNumbers {
  rank: number;
  step_s: number;
  compute_s: number;
  communication_s: number;
  exposed_s: number;
}

export interface Summary {
  steps: number;
  ranks: number;
  step_s: number;
  step_p10_s: number;
  step_p90_s: number;
  compute_s: number;
  communication_s: number | null;
  exposed_s: number | null;
  hidden_ratio: number | null;
  overlap_degree: number | null;
  communication_ratio: number | null;
  bound_s: number | null;
  bound_gap_ratio: number | null;
  samples_per_s: number | null;
  buckets: Bucket[];
  per_rank: RankNumbers[];
}

export interface Diagnosis {
  id: string;
  weight: string;
  finding: string;
  evidence: string;
  threshold: string;
  advice: string;
}

export interface CollectiveKind {
  collective: string;
  name: string;
  group: string | null;
  group_size: number;
  bytes: number;
  count: number;
  total_s: number;
  median_s: number;
  p90_s: number;
  transfer_s: number;
  matched: boolean;
  busbw_bytes_per_s: number | null;
}

export interface Explanation {
  verdict: string;
  host_only: boolean;
  summary: Summary | null;
  least_exposed_s: number | null;
  collectives: CollectiveKind[];
  stragglers: { rank: number; waited_s: number; last: number; made_others_wait_s: number }[];
  matched: number;
  certificate: {
    exposed_now_s: number;
    exposed_bound_s: number;
    recoverable_s: number;
    settings: string;
    assumptions: string;
  } | null;
  diagnoses: Diagnosis[];
}

export interface PackedRow {
  band: 'compute' | 'wait' | 'communication' | 'copy';
  device: number | null;
  count: number;
  data: string;
}

export interface PackedTimeline {
  source: string;
  world_size: number;
  origin_unix_ns: string;
  begin_ns: number;
  length_ns: number;
  names: string[];
  kinds: [kind: string, name: number, collective: string][];
  ranks: { rank: number; rows: PackedRow[]; exposed: { count: number; data: string } }[];
  steps: { step: number; name: string; begin_ns: number; end_ns: number }[];
  left_out: { host_rows: number; crowded: number; merged: number; gap_ns: number };
}

/** step, rank, begin, length, compute, communication, exposed (all s), launches */
export type StepRow = [number, number, number, number, number, number, number, number];

export interface Run {
  name: string;
  files: string[];
  notes: string[];
  explanation: Explanation;
  /** For What-if; absent in reports of earlier versions. */
  model?: { profile: object | null; fitted: { latency_s: number; seconds_per_byte: number; ranks: number } | null };
  steps_marked: boolean;
  has_communication: boolean;
  steps: { columns: string[]; rows: StepRow[]; left_out: number };
  timeline: PackedTimeline;
}

export interface PlanBucket {
  bytes: number;
  algorithm: string;
  priority: number;
  tensor_count: number;
  tensors: string[];
}

export interface MachineLevel {
  name: string;
  group_size: number;
  latency_s: number;
  bandwidth_bytes_per_s: number;
  in_switch_efficiency?: number;
}

export interface MachineCurve {
  collective: string;
  algorithm: string;
  ranks: number;
  size_bytes: number[];
  time_s: number[];
}

export interface Machine {
  name: string;
  basis: string;
  source: string;
  /** Innermost first. */
  levels: MachineLevel[];
  compute_slowdown?: number;
  codecs?: { codec: string; encode_bytes_per_s: number; decode_bytes_per_s: number; ratio: number; error_ratio: number }[];
  curves?: MachineCurve[];
}

export interface Report {
  schema: string;
  version: string;
  command: string;
  language: string;
  redacted: boolean;
  summaries: { name: string; summary: Summary }[];
  plans: { name: string; origin: string; hash: string; buckets: PlanBucket[] }[];
  /** Absent in reports of earlier versions. */
  machines?: Machine[];
  runs: Run[];
}

/** Not a report. The message is a key of the dictionary, with what the reader needs to know. */
export class NoReport extends Error {}

/** Of a report's data block, or of a whole report. */
export function parseReport(text: string): Report {
  let json: unknown;
  try {
    const block = /<script type="application\/json" id="data">([^<]*)<\/script>/.exec(text);
    json = JSON.parse(block?.[1] ?? text);
  } catch (error) {
    throw new NoReport(error instanceof Error ? error.message : String(error));
  }
  const report = json as Partial<Report> | null;
  if (typeof report !== 'object' || report === null || report.schema !== 'stretto.report/1') {
    throw new NoReport(`schema ${JSON.stringify(report?.schema ?? null).slice(0, 80)}`);
  }
  for (const key of ['runs', 'summaries', 'plans'] as const) {
    if (!Array.isArray(report[key])) {
      throw new NoReport(`${key}: ${typeof report[key]}`);
    }
  }
  for (const run of report.runs ?? []) {
    if (typeof run?.explanation?.verdict !== 'string' || !Array.isArray(run.timeline?.ranks)) {
      throw new NoReport('runs');
    }
  }
  return report as Report;
}
