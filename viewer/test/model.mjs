// SPDX-License-Identifier: Apache-2.0
// The page reckons with the same code as the program, compiled by another compiler for another machine: the same
// questions, asked at random, must get the same numbers. Run by ctest as viewer.model; STRETTO names the program,
// STRETTO_VIEWER_BINARY the folder where node_modules lie, STRETTO_WASM the compiled planner, STRETTO_EXAMPLES a folder of traces. SEED=N asks other questions.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { packages } from './packages.mjs';

const { STRETTO, STRETTO_EXAMPLES, STRETTO_WASM } = process.env;
const folder = mkdtempSync(join(tmpdir(), 'stretto-model-'));

// The page's own module, without its types.
const typescript = packages()('typescript');
const source = readFileSync(new URL('../src/model.ts', import.meta.url), 'utf8');
const module = join(folder, 'model.mjs');
writeFileSync(module, typescript.transpileModule(source, { compilerOptions: { target: 'ES2022', module: 'ESNext' } }).outputText);
const { Model, Refused } = await import(pathToFileURL(module));
const model = await Model.from(readFileSync(STRETTO_WASM));

let state = Number(process.env.SEED ?? 7);
function random() {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return state / 2 ** 32;
}
const among = (values) => values[Math.floor(random() * values.length)];
const between = (low, high) => Number((low * (high / low) ** random()).toPrecision(3));

const run = (args) => JSON.parse(execFileSync(STRETTO, [...args, '--json'], { encoding: 'utf8', maxBuffer: 1 << 28, stdio: ['ignore', 'pipe', 'ignore'] }));

/** Both compilers round every operation; the C libraries' log and exp may differ in the last bit. */
function close(found, expected, path) {
  if (typeof expected === 'number') {
    const slack = path.includes('_s') && Number.isInteger(expected * 1e9) ? 1.1e-9 : 0;
    assert.ok(Math.abs(found - expected) <= slack + 1e-12 * Math.abs(expected), `${path}: ${found} in the page, ${expected} in the program`);
  } else if (expected !== null && typeof expected === 'object') {
    assert.deepEqual(Object.keys(found), Object.keys(expected), path);
    for (const key of Object.keys(expected)) {
      close(found[key], expected[key], `${path}.${key}`);
    }
  } else {
    assert.equal(found, expected, path);
  }
}

const planKeys = ['predicted_step_s', 'compute_s', 'exposed_s', 'optimum_s', 'optimum_is_exact', 'bound_s', 'bound_gap_ratio', 'buckets', 'alternatives', 'bounds'];
const pick = (object, keys) => Object.fromEntries(keys.map((key) => [key, object[key]]));

function compare(question, flags, profile) {
  const answer = model.whatIf(question);
  const plan = run(['plan', ...[profile].flat(), ...flags, ...(question.sweep ? ['--sweep'] : [])]);
  close(pick(answer.plan, planKeys), pick(plan, planKeys), 'plan');
  if (question.sweep) {
    close(answer.sweep, plan.sweep, 'sweep');
  }
  const simulated = run(['simulate', ...[profile].flat(), ...flags, '--buckets', question.buckets]);
  close(pick(answer, ['step_s', 'communication_end_s']), pick(simulated, ['step_s', 'communication_end_s']), 'simulate');
  close(answer.summary, simulated.summary, 'summary');
}

let asked = 0;
try {
  const { models, machines } = model.names();
  assert.ok(models.length >= 8 && machines.length > 0);
  for (let i = 0; i < 4; i++) {
    const ranks = among([1, 2, 3, 8, 16, 48]);
    const question = {
      model: among(['resnet50', 'vgg16', 'gpt2_124m']),
      machine: random() < 0.7 ? `${ranks}@${between(1, 400)}Gbit/s,${between(1, 500)}us` : among(['dgx-h100x4', '10gbex16', '2x4@intra=20GB/s,2us@inter=1Gbit/s,50us']),
      algorithm: among(['auto', 'ring', 'auto', 'hierarchical']),
      schedule: among(['serial', 'overlap', 'overlap', 'priority']),
      streams: among([1, 1, 2, 0]),
      latency: among([1, between(0.1, 10)]),
      bandwidth: among([1, between(0.1, 10)]),
      compute_speed: among([1, between(0.1, 10)]),
      buckets: among(['planned', 'ddp', `${between(1e5, 1e8) | 0}`]),
      sweep: i % 3 === 0,
    };
    const flags = ['machine', 'algorithm', 'schedule', 'streams', 'latency', 'bandwidth'].flatMap((key) => [`--${key}`, String(question[key])]);
    flags.push('--compute-speed', String(question.compute_speed));
    if (ranks > 1 && question.machine.startsWith(`${ranks}@`) && random() < 0.4) {
      question.rank_speed = { rank: Math.floor(random() * ranks), speed: between(0.5, 1) };
      flags.push('--rank-speed', `${question.rank_speed.rank}=${question.rank_speed.speed}`);
    }
    try {
      compare(question, flags, question.model);
    } catch (error) {
      throw new Error(`stretto simulate ${question.model} ${flags.join(' ')} --buckets ${question.buckets}: ${error.message}`);
    }
    asked++;
  }

  // A recording: what the page starts from is what the program reads from the same files.
  const traces = readdirSync(STRETTO_EXAMPLES).filter((name) => name.endsWith('.json.gz')).map((name) => join(STRETTO_EXAMPLES, name));
  const page = execFileSync(STRETTO, ['report', ...traces, '-q', '-o', '-'], { encoding: 'utf8', maxBuffer: 1 << 26 });
  const data = JSON.parse(/id="data">(.*?)<\/script>/s.exec(page)[1]).runs[0].model;
  for (const flags of [[], ['--bandwidth', '0.5', '--schedule', 'serial']]) {
    const question = { profile: data.profile, fitted: data.fitted, bandwidth: flags.length ? 0.5 : 1, schedule: flags.length ? 'serial' : 'overlap', buckets: 'ddp' };
    compare(question, flags, traces);
  }

  // What is refused comes with the program's words, and the next question is answered.
  assert.throws(() => model.whatIf({ model: 'resnet51', machine: '8@5Gbit/s,50us' }), (error) => error instanceof Refused && /resnet50/.test(error.message));
  assert.throws(() => model.whatIf({ model: 'resnet50', machine: '8@5Gbit/q,50us' }), Refused);
  assert.throws(() => model.ask('what_if', {}), Refused);
  assert.throws(() => model.ask('no_such', {}), Refused);
  assert.ok(model.whatIf({ model: 'vgg16', machine: '4@10Gbit/s,20us' }).step_s > 0);

  // The codecs are the library's: what was left out and what arrived are the gradient, whatever was asked.
  for (const codec of ['int8', 'topk:0.1', 'topk:3', 'int8']) {
    const gradient = Array.from({ length: 32 }, () => random() - 0.5);
    const residual = gradient.map(() => random() * 0.1);
    const sent = model.compress(codec, gradient, residual);
    gradient.forEach((value, k) => assert.ok(Math.abs(sent.arrived[k] + sent.residual[k] - value - residual[k]) < 1e-6));
    assert.equal(sent.wire_bytes, { int8: 32 + 4, 'topk:0.1': 4 * 8, 'topk:3': 3 * 8 }[codec]);
  }
  // Shuffled ranks cross nodes more often, and in order is the best.
  const order = [...Array(32).keys()];
  const machine = '4x8@intra=200GB/s,2us@inter=25GB/s,5us';
  const shuffled = [...order].sort((a, b) => (a * 7) % 32 - (b * 7) % 32);
  assert.ok(model.ring(machine, order, 1e8).all_reduce_s < model.ring(machine, shuffled, 1e8).all_reduce_s);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
console.log(`${asked} questions, the same answers`);
