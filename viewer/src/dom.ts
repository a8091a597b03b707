// SPDX-License-Identifier: Apache-2.0

type Child = Node | string | number | null | undefined | false;
type Value = string | number | boolean | null | undefined | ((event: never) => void);

/** An element. `on...` are listeners; everything else is an attribute, left out if false or null. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, Value> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') {
      element.addEventListener(name.slice(2), value as EventListener);
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, value === true ? '' : String(value));
    }
  }
  append(element, children);
  return element;
}

export function append(parent: Node, children: Child[]): void {
  for (const child of children) {
    if (child !== null && child !== undefined && child !== false) {
      parent.appendChild(typeof child === 'object' ? child : document.createTextNode(String(child)));
    }
  }
}

/** Text that came from a file: in whatever direction it is written, it moves nothing around it. */
export const foreign = (text: string): HTMLElement => h('bdi', { class: 'foreign' }, text);

export type Cell = string | number | Node;

/** A table that scrolls by itself where the page is narrow. The first `left` columns are words, and so is `words`. */
export function table(caption: string, head: string[], rows: Cell[][], left = 1, words = -1): HTMLElement {
  const cell = (tag: 'td' | 'th', content: Cell, column: number): HTMLElement =>
    h(
      tag,
      { class: column < left || column === words ? 'left' : null, scope: tag === 'th' ? 'col' : null },
      typeof content === 'number' ? String(content) : content,
    );
  return h(
    'div',
    { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption },
    h(
      'table',
      {},
      h('caption', {}, caption),
      h('thead', {}, h('tr', {}, ...head.map((text, i) => cell('th', text, i)))),
      h('tbody', {}, ...rows.map((row) => h('tr', {}, ...row.map((content, i) => cell('td', content, i))))),
    ),
  );
}

/** A line for a terminal, and a button that copies it. */
export function command(text: string, copy: string, copied: string): HTMLElement {
  const button = h('button', { type: 'button', class: 'copy' }, copy);
  button.addEventListener('click', () => {
    const done = (): void => {
      button.textContent = copied;
    };
    // From disk the clipboard may be closed: then the line is selected, for Ctrl+C.
    const select = (): void => {
      const range = document.createRange();
      range.selectNodeContents(code);
      const selection = getSelection();
      selection?.removeAllRanges();
      selection?.addRange(range);
      if (document.execCommand('copy')) {
        done();
      }
    };
    if (navigator.clipboard) {
      navigator.clipboard.writeText(text).then(done, select);
    } else {
      select();
    }
  });
  const code = h('code', {}, text);
  return h('div', { class: 'command' }, h('pre', { tabindex: 0 }, code), button);
}
