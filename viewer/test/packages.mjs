// SPDX-License-Identifier: Apache-2.0
// What the tests of the viewer need from npm, of which nothing is in the page. It is kept in STRETTO_VIEWER_BINARY, and got
// anew only when viewer/package-lock.json is another one. Ends with 77 where it cannot be got, and says why.
import { spawnSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

export function skip(why) {
  console.log(`skipped: ${why}`);
  process.exit(77);
}

/** `require` of the installed packages. */
export function packages() {
  if (Number(process.versions.node.split('.')[0]) < 18) {
    skip(`Node ${process.versions.node} is older than 18`);
  }
  const folder = process.env.STRETTO_VIEWER_BINARY;
  const lock = new URL('../package-lock.json', import.meta.url);
  const installed = join(folder, 'installed.json');
  if (!existsSync(installed) || !readFileSync(installed).equals(readFileSync(lock))) {
    mkdirSync(folder, { recursive: true });
    for (const name of ['package.json', 'package-lock.json']) {
      copyFileSync(new URL(`../${name}`, import.meta.url), join(folder, name));
    }
    // Their scripts are not run.
    const npm = spawnSync('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error'], { cwd: folder, encoding: 'utf8' });
    if (npm.error) {
      skip(`no npm (apt-get install npm): ${npm.error.message}`);
    }
    if (npm.status !== 0) {
      skip(`npm could not install what viewer/package-lock.json lists: ${npm.stderr}`);
    }
    writeFileSync(installed, readFileSync(lock));
  }
  return createRequire(join(folder, 'package.json'));
}
