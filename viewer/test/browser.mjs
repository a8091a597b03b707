// SPDX-License-Identifier: Apache-2.0
// The report in a real browser, from disk. Environment: STRETTO (the program), STRETTO_VIEWER_BINARY (where
// node_modules lie), STRETTO_EXAMPLES (traces), STRETTO_WASM (empty where the page has no What-if), and STRETTO_CHROMIUM
// if it is elsewhere.
// Ends with 77 where something is missing, and says what.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { packages, skip } from './packages.mjs';

const { STRETTO, STRETTO_EXAMPLES } = process.env;
const chromium = [process.env.STRETTO_CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(
  (path) => path && existsSync(path),
);
if (!chromium) {
  skip('no chromium (apt-get install chromium, or set STRETTO_CHROMIUM)');
}
const require = packages();
const playwright = require('playwright-core');
const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');

const folder = mkdtempSync(join(tmpdir(), 'stretto-viewer-'));
const stretto = (...args) => execFileSync(STRETTO, args, { cwd: folder, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
const at = (name) => join(folder, name);

// ---- what is looked at ---------------------------------------------------------------------------

const examples = readdirSync(STRETTO_EXAMPLES).filter((name) => name.endsWith('.json.gz')).map((name) => join(STRETTO_EXAMPLES, name));
stretto('report', ...examples, '-o', 'gloo.html');
stretto('report', ...examples, '--redact', '-o', 'redacted.html');

/** A kineto trace of one rank: names that want out, many kernels, three steps. */
const hostile = [
  '</script><script>window.broken=1</script>',
  '<img src=x onerror="window.broken=1">',
  '\u202eltr\u2066 --> & \' "',
  'x'.repeat(10_000),
];
function trace(rank) {
  const events = [];
  for (let step = 0; step < 3; step++) {
    const begin = step * 20_000;
    events.push({ ph: 'X', cat: 'user_annotation', name: `ProfilerStep#${step}`, pid: 1, tid: 1, ts: begin, dur: 18_000 });
    for (let i = 0; i < 100; i++) {
      events.push({ ph: 'X', cat: 'kernel', name: hostile[i % 4], pid: 0, tid: 7, ts: begin + 100 + i * 80, dur: 60, args: { device: rank, stream: 7 } });
    }
    for (let i = 0; i < 4; i++) {
      events.push({
        ph: 'X', cat: 'kernel', name: 'ncclDevKernel_AllReduce_Sum_f32_RING_LL', pid: 0, tid: 8, ts: begin + 4000 + i * 3000, dur: 2800,
        args: { device: rank, stream: 8, 'Collective name': 'allreduce', 'In msg nelems': 1 << (18 + i), 'Out msg nelems': 1 << (18 + i), 'Group size': 2, dtype: 'Float', 'Process Group Name': hostile[1], 'Process Group Ranks': '[0, 1]' },
      });
    }
  }
  return JSON.stringify({ schemaVersion: 1, distributedInfo: { backend: 'nccl', rank, world_size: 2 }, traceEvents: events });
}
writeFileSync(at('rank0.json'), trace(0));
writeFileSync(at('rank1.json'), trace(1));
stretto('report', 'rank0.json', 'rank1.json', '-o', 'hostile.html');
// A machine of two levels with a curve of each kind, and one that only has links.
writeFileSync(at('machine.json'), JSON.stringify({
  schema: 'stretto.machine/1', name: hostile[1], basis: 'measured', source: 'stretto measure all_reduce',
  levels: [{ name: 'node', group_size: 4, latency_s: 2e-6, bandwidth_bytes_per_s: 20e9 }, { name: hostile[0], group_size: 2, latency_s: 5e-5, bandwidth_bytes_per_s: 1.25e9 }],
  compute_slowdown: 1.25,
  codecs: [{ codec: 'int8', encode_bytes_per_s: 5e9, decode_bytes_per_s: 6e9, ratio: 3.94, error_ratio: 0.006 }],
  curves: ['ring', 'hierarchical'].map((algorithm, i) => ({ collective: 'all_reduce', algorithm, ranks: 8, size_bytes: [1024, 1 << 20, 1 << 26], time_s: [1e-4, 2e-3, 0.1 / (i + 1)] })),
}));
stretto('report', 'machine.json', 'rank0.json', 'rank1.json', '--machine', '2@1GB/s,10us', '-o', 'machine.html');
// As many as measure --algorithm all writes.
writeFileSync(at('algorithms.json'), JSON.stringify({
  schema: 'stretto.machine/1', name: 'all', basis: 'measured', source: '',
  levels: [{ name: 'link', group_size: 8, latency_s: 2e-6, bandwidth_bytes_per_s: 20e9 }],
  curves: ['auto', 'direct', 'ring', 'recursive_doubling', 'halving_doubling', 'binomial_tree', 'double_binary_tree', 'pipelined_chain', 'hierarchical', 'leader', 'parameter_server']
    .map((algorithm, i) => ({ collective: 'all_reduce', algorithm, ranks: 8, size_bytes: [1024, 1 << 20, 1 << 26], time_s: [1e-4, 2e-3, 0.1 / (i + 1)] })),
}));
stretto('report', 'algorithms.json', '-o', 'algorithms.html');
stretto('convert', 'rank0.json', 'rank1.json', '-o', 'a.timeline.json');
stretto('report', 'a.timeline.json', ...examples, '-o', 'two.html', '--lang', 'zh');
const whole = readFileSync(at('hostile.html'), 'utf8');
writeFileSync(at('cut.html'), whole.replace(/(id="data">.{2000}).*?<\/script>/s, '$1</script>'));

const browser = await playwright.chromium.launch({
  executablePath: chromium,
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
});

/** A page of a report, that fails the test on any error or refusal it sees. */
async function open(file, hash, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  const seen = [];
  page.on('console', (message) => ['error', 'warning'].includes(message.type()) && seen.push(message.text()));
  page.on('pageerror', (error) => seen.push(String(error)));
  page.on('request', (request) => request.url().startsWith('http') && seen.push(`asked for ${request.url()}`));
  await page.goto(`file://${at(file)}#${hash}`);
  return { page, close: async () => { assert.deepEqual(seen, []); await context.close(); } };
}

const tests = [];
const test = (name, run) => tests.push([name, run]);
// A build without a compiler for WebAssembly has fewer pages.
const hasModel = (process.env.STRETTO_WASM ?? '') !== '';
const names = hasModel ? ['overview', 'timeline', 'buckets', 'ranks', 'whatif', 'learn', 'data'] : ['overview', 'timeline', 'buckets', 'ranks', 'data'];
/** What is there once a page that reckons has done so. */
const reckoned = { whatif: '.results .cards', learn: '.demo .verdict' };

// ---- what it must do -----------------------------------------------------------------------------

const all = { type: 'tag', values: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'] };
const colors = { type: 'rule', values: ['color-contrast'] };
for (const [width, colorScheme, lang, rules] of [
  [1920, 'light', 'en', all],
  [360, 'dark', 'zh', all],
  // What these can break beside the two before is colour.
  [360, 'light', 'zh', colors],
  [1920, 'dark', 'en', colors],
]) {
  test(`every page fits and is accessible: ${width} px, ${colorScheme}, ${lang}`, async () => {
    const { page, close } = await open('hostile.html', `p=overview&lang=${lang}`, { viewport: { width, height: 900 }, colorScheme });
    await page.evaluate(axe);
    for (const [i, name] of names.entries()) {
      await page.click(`nav a:nth-child(${i + 1})`);
      await page.waitForSelector(`nav a:nth-child(${i + 1})[aria-current]`);
      await page.waitForSelector(reckoned[name] ?? 'h1');
      assert.equal(await page.getAttribute('html', 'lang'), lang === 'zh' ? 'zh-Hans' : 'en');
      assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= width, `${name} is wider than the window`);
      assert.equal(await page.evaluate(() => window.broken), undefined);
      const { violations } = await page.evaluate((rules) => window.axe.run('#app', { runOnly: rules }), rules);
      assert.deepEqual(violations.map((v) => `${name}: ${v.id}: ${v.nodes.map((n) => n.html.slice(0, 200)).join('\n')}`), []);
    }
    await close();
  });
}

test('machines: links, curves and codecs, accessible in both themes and on a small screen', async () => {
  for (const [width, colorScheme, lang] of [[1280, 'light', 'en'], [360, 'dark', 'zh']]) {
    const { page, close } = await open('machine.html', `p=machine&lang=${lang}`, { viewport: { width, height: 900 }, colorScheme });
    await page.waitForSelector('.machine-tree');
    assert.equal(await page.locator('#content section').count(), 2);
    const [first, second] = await page.locator('#content section').all();
    assert.equal(await first.locator('.machine-tree .member').count(), 8);
    assert.equal(await first.locator('.machine-tree .link').count(), 3, 'two nodes, and what joins them');
    assert.equal(await first.locator('polyline').count(), 2);
    // 64 MiB in 0.05 s on 8 ranks: 2 x 7/8 of it over each link.
    assert.ok((await first.textContent()).includes('2.35 GB/s'));
    assert.ok((await first.textContent()).includes('5.00 GB/s'));
    assert.equal(await second.locator('polyline').count(), 0);
    assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= width);
    assert.equal(await page.evaluate(() => window.broken), undefined);
    await page.evaluate(axe);
    const { violations } = await page.evaluate((rules) => window.axe.run('#app', { runOnly: rules }), all);
    assert.deepEqual(violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html.slice(0, 200)).join('\n')}`), []);
    await close();
  }
  const many = await open('algorithms.html', 'p=machine');
  await many.page.waitForSelector('.machine-tree');
  for (const lines of ['polyline', '.legend line']) {
    const looks = await many.page.locator(lines).evaluateAll((elements) => elements.map((element) => {
      const { stroke, strokeDasharray } = getComputedStyle(element);
      return `${stroke} ${strokeDasharray}`;
    }));
    assert.equal(looks.length, 11);
    assert.equal(new Set(looks).size, 11, `no two of ${lines} look the same`);
  }
  await many.close();
  const without = await open('hostile.html', 'p=machine');
  await without.page.waitForSelector('#content h1');
  assert.equal(await without.page.locator('nav a:has-text("Machine")').count(), 0);
  await without.close();
});

test('hostile names are text', async () => {
  const { page, close } = await open('hostile.html', 'p=timeline');
  await page.click('details summary');
  const shown = await page.textContent('details');
  assert.ok(shown.includes('ncclDevKernel'));
  await page.goto(`file://${at('hostile.html')}#p=ranks`);
  await page.waitForSelector('h1:has-text("Ranks")');
  assert.ok((await page.textContent('main')).includes('<img src=x'));
  assert.equal(await page.locator('img').count(), 0);
  assert.equal(await page.evaluate(() => window.broken), undefined);
  await close();
});

test('the numbers of an area are those of the analysis', async () => {
  const { page, close } = await open('hostile.html', 'p=timeline&t=0-18');
  await page.focus('canvas');
  await page.keyboard.press('f');
  await page.keyboard.press('m');
  const cells = await page.locator('#content table tbody tr:first-child td').allTextContents();
  // Three steps of 100 kernels of 60 us, and 4 collectives of 2.8 ms.
  assert.deepEqual(cells.slice(0, 3), ['0', '18.0 ms', '33.6 ms']);
  await close();
});

test('keyboard only: to every page, along the timeline, and out again', async () => {
  const { page, close } = await open('hostile.html', 'p=overview');
  await page.waitForSelector('nav a');
  const focused = () => page.evaluate(() => document.activeElement?.textContent ?? '');
  const until = async (text) => {
    for (let i = 0; i < 30; i++) {
      await page.keyboard.press('Tab');
      if ((await focused()) === text) {
        return;
      }
    }
    assert.fail(`Tab never came to ${text}`);
  };
  await until('Timeline');
  await page.keyboard.press('Enter');
  await page.waitForSelector('canvas');
  for (let i = 0; i < 40 && !(await page.evaluate(() => document.activeElement?.tagName === 'CANVAS')); i++) {
    await page.keyboard.press('Tab');
  }
  await page.keyboard.press('n');
  const first = await page.textContent('.info');
  assert.ok(first.includes('ncclDevKernel') && first.includes('rank 0'), first);
  await page.keyboard.press('n');
  assert.notEqual(await page.textContent('.info'), first);
  await page.keyboard.press('ArrowDown');
  assert.ok((await page.textContent('.info')).includes('rank 1'));
  const before = page.url();
  await page.keyboard.press('+');
  assert.notEqual(page.url(), before);
  await page.keyboard.press('Escape');
  await page.keyboard.press('Tab');
  assert.notEqual(await page.evaluate(() => document.activeElement?.tagName), 'CANVAS');
  await close();
});

test('pointer: a bar says what it is, a drag moves, Shift and a drag select, the wheel zooms', async () => {
  const { page, close } = await open('hostile.html', 'p=timeline&t=0-60');
  await page.waitForSelector('canvas');
  const box = await page.locator('canvas').first().boundingBox();
  // Below the axis and the row of compute, whatever their heights.
  const y = box.y + 22 + 4 + 2 * 16 + 9;
  await page.mouse.click(box.x + 64 + ((box.width - 64) * 5) / 60, y);
  assert.ok((await page.textContent('.info')).includes('ncclDevKernel'));
  await page.keyboard.down('Shift');
  await page.mouse.move(box.x + 200, y);
  await page.mouse.down();
  await page.mouse.move(box.x + 500, y, { steps: 3 });
  await page.mouse.up();
  await page.keyboard.up('Shift');
  assert.equal(await page.locator('#content table tbody tr').count(), 2);
  const window = () => new URLSearchParams(page.url().split('#')[1]).get('t');
  await page.mouse.wheel(0, -300);
  await page.waitForFunction(() => new URLSearchParams(location.hash.slice(1)).get('t') !== '0-60');
  const zoomed = window();
  await page.mouse.move(box.x + 500, y);
  await page.mouse.down();
  await page.mouse.move(box.x + 400, y, { steps: 3 });
  await page.mouse.up();
  assert.notEqual(window(), zoomed);
  await close();
});

test('a bucket leads to its collectives', async () => {
  const { page, close } = await open('hostile.html', 'p=buckets');
  await page.click('tbody tr:first-child a');
  await page.waitForSelector('canvas');
  assert.ok(page.url().includes('p=timeline') && page.url().includes('b=0'));
  await close();
});

test('two runs: one is chosen, both are compared; language and theme switch', async () => {
  const { page, close } = await open('two.html', 'p=overview');
  await page.waitForSelector('#content h1');
  assert.equal(await page.getAttribute('html', 'lang'), 'zh-Hans');
  await page.selectOption('select[aria-label="语言"]', 'en');
  assert.equal(await page.getAttribute('html', 'lang'), 'en');
  const before = await page.textContent('h1');
  await page.selectOption('select[aria-label="Run"]', '1');
  await page.waitForFunction((text) => document.querySelector('h1').textContent !== text, before);
  await page.selectOption('select[aria-label="Theme"]', 'dark');
  assert.equal(await page.getAttribute('html', 'data-theme'), 'dark');
  assert.equal(await page.locator('#content table tbody tr').count(), 2);
  await close();
});

if (hasModel) {
  test('what if: the numbers are those of the command it gives, for the recording and for a model', async () => {
    const { page, close } = await open('gloo.html', 'p=whatif');
    await page.waitForSelector('.results .cards');
    const same = async () => {
      const [command] = await page.locator('.commands code').allTextContents();
      assert.ok(command.startsWith('stretto simulate '), command);
      const simulated = JSON.parse(stretto(...command.split(' ').slice(1), '--json'));
      const step = await page.textContent('.cards > div:nth-child(2) dd');
      const expected = `${(simulated.step_s * 1e3).toPrecision(3)} ms`;
      assert.ok(step.startsWith(expected), `${command}: ${step} in the page, ${expected} in the program`);
      return command;
    };
    await same();
    // By keyboard, as the sliders are.
    await page.getByLabel('Bandwidth').and(page.locator(':visible')).focus();
    await page.keyboard.press('ArrowLeft');
    await page.keyboard.press('ArrowLeft');
    await page.waitForFunction(() => document.querySelector('.commands code')?.textContent.includes('--bandwidth 0.5'));
    assert.ok((await same()).includes('--bandwidth 0.5'));
    assert.ok(page.url().includes('bandwidth=0.5'));
    await page.getByLabel('Model').selectOption('vgg16');
    await page.getByLabel('Machine').selectOption('flat');
    await page.getByLabel('Buckets', { exact: true }).selectOption('size');
    await page.getByLabel('Schedule').selectOption('priority');
    await page.waitForFunction(() => document.querySelector('.commands code')?.textContent.includes('priority'));
    assert.ok((await same()).startsWith('stretto simulate vgg16 --machine 8@10Gbit/s,50us --schedule priority --buckets '));
    // The address holds it all: the same page again.
    const address = page.url();
    const shown = await page.textContent('.results .verdict');
    await page.reload();
    await page.goto(address);
    await page.waitForSelector('.results .cards');
    assert.equal(await page.textContent('.results .verdict'), shown);
    await close();
  });

  test('learn: one clock for four cameras, numbers as the program has them', async () => {
    const { page, close } = await open('gloo.html', 'p=learn');
    await page.waitForSelector('.demo .verdict');
    // By step: the source begins with nothing, and every gradient is reduced in the end.
    assert.ok((await page.textContent('.view.source .said')).includes('0 are reduced'));
    const seen = new Set();
    for (let i = 0; i < 60; i++) {
      await page.click('.transport button:has-text("Step ▶")');
      seen.add(await page.textContent('.view.pipe .said'));
    }
    assert.ok(seen.size > 6, `${seen.size} different moments`);
    assert.match(await page.textContent('.view.source .said'), /12 are reduced/);
    // The same step in the program.
    const [download] = await Promise.all([page.waitForEvent('download'), page.click('button:has-text("layers.json")')]);
    await download.saveAs(at('layers.json'));
    const command = await page.textContent('.demo .command code');
    const simulated = JSON.parse(stretto(...command.split(' ').slice(1), '--json'));
    assert.ok((await page.textContent('.demo .verdict')).includes(`as set ${(simulated.step_s * 1e3).toPrecision(3)} ms`));
    // Without overlap it is slower, and a slow rank holds all up.
    const set = async () => Number(/as set ([\d.]+) ms/.exec(await page.textContent('.demo .verdict'))[1]);
    const before = await set();
    await page.getByLabel(/Overlap:/).uncheck();
    await page.waitForFunction((text) => !document.querySelector('.demo .verdict').textContent.includes(text), `as set ${before}`);
    const serial = await set();
    assert.ok(serial > before);
    await page.getByLabel(/One rank is slow/).check();
    await page.waitForFunction((text) => !document.querySelector('.demo .verdict').textContent.includes(text), `as set ${serial}`);
    assert.ok((await set()) > serial);
    // The pictures are captions: the numbers stay.
    await page.getByLabel('Told as').selectOption('tea');
    assert.ok((await page.textContent('.view.node .caption')).includes('head office'));
    // What top-k leaves is paid back: the residual changes from step to step.
    const left = await page.textContent('section:has(h3:has-text("Is it quicker")) p[aria-live]');
    await page.click('button:has-text("Next step")');
    assert.notEqual(await page.textContent('section:has(h3:has-text("Is it quicker")) p[aria-live]'), left);
    // A shuffled ring leaves nodes more often.
    await page.click('button:has-text("Shuffle")');
    assert.ok(!(await page.textContent('section:has(button:has-text("Shuffle")) p[aria-live]')).startsWith('4 edges'));
    await close();
  });

  test('learn: plays when asked, and never where motion is to be reduced', async () => {
    const moving = await open('gloo.html', 'p=learn');
    await moving.page.waitForSelector('.demo .verdict');
    const clock = (page) => page.textContent('.clock');
    const before = await clock(moving.page);
    assert.equal(await clock(moving.page), before);
    await moving.page.click('.play');
    await moving.page.waitForFunction((text) => document.querySelector('.clock').textContent !== text, before);
    await moving.close();
    const still = await open('gloo.html', 'p=learn', { reducedMotion: 'reduce' });
    await still.page.waitForSelector('.demo .verdict');
    assert.equal(await still.page.locator('.play').count(), 0);
    await still.page.focus('.transport input');
    await still.page.keyboard.press('ArrowRight');
    assert.notEqual(await clock(still.page), before);
    await still.close();
  });

  test('what if: what the planner refuses is said, and it goes on', async () => {
    const { page, close } = await open('gloo.html', 'p=whatif&model=nonsense&machine=flat');
    await page.waitForSelector('.results .alert');
    assert.ok((await page.textContent('.results .alert')).includes("'nonsense'"));
    await page.getByLabel('Model').selectOption('resnet50');
    await page.waitForSelector('.results .cards');
    await close();
  });
}

test('downloads hold what they say', async () => {
  const { page, close } = await open('hostile.html', 'p=data');
  const save = async (text) => {
    const [download] = await Promise.all([page.waitForEvent('download'), page.click(`button:has-text("${text}")`)]);
    return readFileSync(await download.path(), 'utf8');
  };
  const json = JSON.parse(await save('JSON'));
  assert.equal(json.schema, 'stretto.report/1');
  assert.equal((await save('Ranks')).split('\r\n')[0], 'rank,step_s,compute_s,communication_s,exposed_s');
  await page.goto(`file://${at('hostile.html')}#p=timeline`);
  await page.waitForSelector('canvas');
  const svg = await save('SVG');
  assert.ok(svg.startsWith('<svg') && !svg.includes('<img') && svg.includes('url(#hatch)'));
  await close();
});

test('no script: the answer, a picture and tables', async () => {
  const { page, close } = await open('gloo.html', '', { javaScriptEnabled: false });
  assert.ok((await page.textContent('.verdict')).startsWith('exposed communication'));
  assert.equal(await page.locator('svg.still').count(), 1);
  assert.ok(await page.isVisible('table'));
  await close();
});

test('a file that was cut off gives a sentence and what can be read', async () => {
  const { page, close } = await open('cut.html', 'p=timeline');
  assert.ok((await page.textContent('.alert')).includes('cannot be read'));
  assert.ok(await page.isVisible('svg.still'));
  await close();
});

test('a foreign file dropped on the page gives a sentence, a report opens', async () => {
  const { page, close } = await open('hostile.html', 'p=overview');
  const drop = (name, text) => page.evaluate(([name, text]) => {
    const data = new DataTransfer();
    data.items.add(new File([text], name));
    document.body.dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true }));
  }, [name, text]);
  await page.waitForSelector('#content h1');
  await drop('a.json', '{"traceEvents": []}');
  await page.waitForSelector('.toast');
  assert.ok((await page.textContent('.toast')).includes('a.json is no Stretto report'));
  const before = await page.textContent('h1');
  await drop('b.html', readFileSync(at('gloo.html'), 'utf8'));
  await page.waitForFunction((text) => document.querySelector('h1').textContent !== text, before);
  await close();
});

test('redacted: no name of the program, its files or its user', async () => {
  const text = readFileSync(at('redacted.html'), 'utf8');
  for (const secret of ['gloo_ddp', STRETTO_EXAMPLES, 'AddmmBackward']) {
    assert.ok(!text.includes(secret), `holds ${secret}`);
  }
  const { page, close } = await open('redacted.html', 'p=overview');
  assert.ok((await page.textContent('main')).includes('were replaced'));
  await close();
});

test('reduced motion: nothing moves by itself', async () => {
  const { page, close } = await open('hostile.html', 'p=timeline', { reducedMotion: 'reduce' });
  await page.waitForSelector('canvas');
  assert.equal(await page.evaluate(() => document.getAnimations().length), 0);
  await close();
});

// With STRETTO_SCREENSHOTS=FOLDER: the pictures of README.md, not a test.
if (process.env.STRETTO_SCREENSHOTS) {
  for (const [name, hash, height] of [['report-timeline', 'p=timeline&lang=en', 560]]) {
    const { page, close } = await open('gloo.html', hash, { viewport: { width: 1100, height } });
    await page.waitForTimeout(300);
    await page.screenshot({ path: join(process.env.STRETTO_SCREENSHOTS, `${name}.png`) });
    await close();
  }
}

let failed = 0;
// One argument: only the tests whose name has it.
const chosen = tests.filter(([name]) => name.includes(process.argv[2] ?? ''));
for (const [name, run] of chosen) {
  const started = Date.now();
  try {
    await run();
    console.log(`ok      ${name} (${((Date.now() - started) / 1000).toFixed(1)} s)`);
  } catch (error) {
    failed++;
    console.log(`FAILED  ${name}\n${error.stack ?? error}`);
  }
}
await browser.close();
rmSync(folder, { recursive: true, force: true });
console.log(`${chosen.length - failed} passed, ${failed} failed`);
process.exit(failed === 0 && chosen.length > 0 ? 0 : 1);
