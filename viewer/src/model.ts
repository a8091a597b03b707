// SPDX-License-Identifier: Apache-2.0
// Stretto's own planner and simulator, compiled to WebAssembly (viewer/wasm) and packed into this file.

import type { PackedTimeline, Summary } from './data';

export interface Question {
  /** One of the two: a model that is built in, or a step profile. */
  model?: string;
  profile?: unknown;
  /** One of the two: as after --machine, or a line fitted to a recording. */
  machine?: string;
  fitted?: Fitted;
  batch?: number;
  device_flops?: number;
  algorithm?: string;
  schedule?: string;
  streams?: number;
  /** What-ifs, as the flags of the same names: 2 is twice as long, twice as quick. */
  latency?: number;
  bandwidth?: number;
  compute_speed?: number;
  rank_speed?: { rank: number; speed: number };
  /** `planned`, `ddp`, or a size in bytes. */
  buckets?: string;
  sweep?: boolean;
  settings?: boolean;
}

export interface Fitted {
  latency_s: number;
  seconds_per_byte: number;
  ranks: number;
}

export interface PlanAnswer {
  predicted_step_s: number;
  compute_s: number;
  exposed_s: number;
  optimum_s: number | null;
  optimum_is_exact: boolean;
  bound_s: number;
  bound_gap_ratio: number;
  buckets: { bytes: number; tensors: number; ready_s: number; begin_s: number; end_s: number; algorithm: string; last_tensor: string }[];
  alternatives: { name: string; schedule: string; buckets: number; step_s: number }[];
  bounds: { name: string; step_s: number; assumption: string }[];
}

export interface Answer {
  ranks: number;
  assumptions: string;
  bytes: number;
  tensors: number;
  plan: PlanAnswer;
  step_s: number;
  communication_end_s: number;
  steady: boolean;
  summary: Summary;
  timeline: PackedTimeline;
  sweep?: { cap_bytes: number; buckets: number; step_s: number }[];
  settings?: string;
}

export interface LayoutAnswer {
  step_s: number;
  memory_bytes: number;
  gradient_bytes: number;
  tensor_bytes: number;
  pipeline_bytes: number;
  expert_bytes: number;
  micro_batches: number;
  layers: number;
}

export interface Compressed {
  arrived: number[];
  residual: number[];
  wire_bytes: number;
  plain_bytes: number;
}

export interface Names {
  models: { name: string; title: string; transformer: boolean }[];
  machines: string[];
  devices: string[];
}

interface Exports {
  memory: WebAssembly.Memory;
  malloc(size: number): number;
  free(at: number): void;
  answer(question: number): number;
  _initialize(): void;
}

/** What the planner refuses, in its own words. */
export class Refused extends Error {}

export class Model {
  private exports: Exports | null = null;

  private constructor(private readonly module: WebAssembly.Module) {}

  static async from(wasm: BufferSource): Promise<Model> {
    return new Model(await WebAssembly.compile(wasm));
  }

  whatIf(question: Question): Answer {
    return this.ask('what_if', question) as Answer;
  }
  collectiveTimes(machine: string, collective: string, bytes: number): { algorithm: string; time_s: number }[] {
    return this.ask('collective_times', { machine, collective, bytes }) as { algorithm: string; time_s: number }[];
  }
  ring(machine: string, places: number[], bytes: number): { all_reduce_s: number; crossings: number[]; edges: [number, number, number][] } {
    return this.ask('ring', { machine, places, bytes }) as { all_reduce_s: number; crossings: number[]; edges: [number, number, number][] };
  }
  layout(question: Record<string, string | number>): LayoutAnswer {
    return this.ask('layout', question) as LayoutAnswer;
  }
  compress(codec: string, gradient: number[], residual: number[]): Compressed {
    return this.ask('compress', { codec, gradient, residual }) as Compressed;
  }
  names(): Names {
    return this.ask('names', {}) as Names;
  }

  /** @throws Refused. */
  ask(kind: string, question: object): unknown {
    const exports = this.instance();
    const text = new TextEncoder().encode(`${JSON.stringify({ ask: kind, ...question })}\0`);
    try {
      const at = exports.malloc(text.length);
      new Uint8Array(exports.memory.buffer, at, text.length).set(text);
      const answer = JSON.parse(this.read(exports.answer(at))) as unknown;
      exports.free(at);
      return answer;
    } catch (error) {
      // Whatever went wrong, what it left in memory is not to be trusted.
      this.exports = null;
      throw error;
    }
  }

  private read(from: number): string {
    const bytes = new Uint8Array(this.exports!.memory.buffer);
    return new TextDecoder().decode(bytes.subarray(from, bytes.indexOf(0, from)));
  }

  private instance(): Exports {
    if (this.exports === null) {
      const imports: WebAssembly.Imports = {};
      // What the C library would ask of a system: there is none, and it takes no for an answer (8: no such file).
      for (const { module, name } of WebAssembly.Module.imports(this.module)) {
        (imports[module] ??= {})[name] = () => 8;
      }
      (imports.page ??= {}).failed = (text: number) => {
        throw new Refused(this.read(text));
      };
      this.exports = new WebAssembly.Instance(this.module, imports).exports as unknown as Exports;
      this.exports._initialize();
    }
    return this.exports;
  }
}

let loading: Promise<Model> | undefined;

/** False in a page that was built without a compiler for WebAssembly. */
export const hasModel = (): boolean => (document.getElementById('wasm')?.textContent ?? '') !== '';

/** Unpacks it, once. */
export function loadModel(): Promise<Model> {
  loading ??= (async () => {
    const packed = Uint8Array.from(atob(document.getElementById('wasm')?.textContent ?? ''), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
    return Model.from(await new Response(stream).arrayBuffer());
  })();
  return loading;
}
