// SPDX-License-Identifier: Apache-2.0
// The page is built by esbuild, which takes types away without a look at them: this looks. Run by ctest as viewer.types.
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { packages } from './packages.mjs';

const compiler = packages().resolve('typescript/bin/tsc');
const viewer = fileURLToPath(new URL('..', import.meta.url));
process.exit(spawnSync(process.execPath, [compiler, '--noEmit', '--project', viewer], { stdio: 'inherit' }).status ?? 1);
