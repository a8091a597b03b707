// SPDX-License-Identifier: Apache-2.0
// One HTML file that needs nothing beside it: script and style stand in it, and its policy names them by
// their hashes, so that a browser runs nothing else and opens no connection. 'wasm-unsafe-eval' lets that
// script, and no other, start the WebAssembly that stands in the file too.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import { defineConfig } from 'vite';

const hash = (text) => `'sha256-${createHash('sha256').update(text, 'utf8').digest('base64')}'`;

/** The planner, packed; empty where it was not built: then the page has no What-if and no Learn. */
const wasm = process.env.STRETTO_WASM ? gzipSync(readFileSync(process.env.STRETTO_WASM), { level: 9 }).toString('base64') : '';
/** Of what is compiled into it. */
const notices = wasm === '' ? '' : readFileSync('THIRD_PARTY_NOTICES', 'utf8').replaceAll('<', '‹');

function oneFile() {
  return {
    name: 'one-file',
    enforce: 'post',
    generateBundle(_, bundle) {
      const files = Object.values(bundle);
      const page = files.find((f) => f.fileName.endsWith('.html'));
      const script = files.find((f) => f.type === 'chunk');
      const style = files.find((f) => f.fileName.endsWith('.css'));
      // A script ends at the first `</script`, wherever it stands.
      const code = script.code.trim().replaceAll('</script', '<\\/script');
      const css = style.source.trim();
      const policy =
        `default-src 'none'; script-src ${hash(code)} 'wasm-unsafe-eval'; style-src ${hash(css)}; img-src data: blob:; ` +
        "base-uri 'none'; form-action 'none'";
      const without = page.source
        .replace(/<script type="module"[^>]*><\/script>\s*/, '')
        .replace(/<link rel="stylesheet"[^>]*>\s*/, '');
      // Functions, because `$&` in a string would be replaced.
      page.source = without
        .replace('@@POLICY@@', () => policy)
        .replace('@@WASM@@', () => wasm)
        .replace('@@NOTICES@@', () => notices)
        .replace('</head>', () => `<style>${css}</style>\n</head>`)
        .replace('</body>', () => `<script type="module">${code}</script>\n</body>`);
      for (const file of files) {
        if (file !== page) {
          delete bundle[file.fileName];
        }
      }
    },
  };
}

export default defineConfig({
  base: './',
  plugins: [oneFile()],
  build: {
    target: 'es2022',
    cssCodeSplit: false,
    modulePreload: false,
    reportCompressedSize: false,
    rollupOptions: { output: { inlineDynamicImports: true } },
  },
});
