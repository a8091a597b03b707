// SPDX-License-Identifier: Apache-2.0
// Form controls with a label and their value in words.

import { h } from './dom';

export interface Control {
  element: HTMLElement;
  input: HTMLInputElement | HTMLSelectElement;
  /** Shown or not, when it does not apply. */
  show(visible: boolean): void;
}

let serial = 0;

/** A slider over a list of values, so that each has an exact form for a command. `change` gets the index. */
export function slider(
  label: string,
  count: number,
  index: number,
  say: (index: number) => string,
  change: (index: number) => void,
): Control {
  const id = `control-${++serial}`;
  const output = h('output', { for: id }, say(index));
  const input = h('input', { type: 'range', id, min: 0, max: count - 1, step: 1, value: index, 'aria-valuetext': say(index) });
  input.addEventListener('input', () => {
    const at = Number(input.value);
    output.textContent = say(at);
    input.setAttribute('aria-valuetext', say(at));
    change(at);
  });
  const element = h('div', { class: 'control' }, h('label', { for: id }, label), output, input);
  return { element, input, show: (visible) => void (element.hidden = !visible) };
}

export function choice(label: string, options: [key: string, text: string][], value: string, change: (value: string) => void): Control {
  const id = `control-${++serial}`;
  const input = h('select', { id });
  for (const [key, text] of options) {
    input.append(h('option', { value: key, selected: key === value }, text));
  }
  input.addEventListener('change', () => change(input.value));
  const element = h('div', { class: 'control' }, h('label', { for: id }, label), input);
  return { element, input, show: (visible) => void (element.hidden = !visible) };
}

export function toggle(label: string, on: boolean, change: (on: boolean) => void): Control {
  const id = `control-${++serial}`;
  const input = h('input', { type: 'checkbox', id, checked: on });
  input.addEventListener('change', () => change(input.checked));
  const element = h('div', { class: 'control check' }, input, h('label', { for: id }, label));
  return { element, input, show: (visible) => void (element.hidden = !visible) };
}

/** Where in a list the value is, or would be. */
export function nearest(values: number[], value: number): number {
  let best = 0;
  values.forEach((each, i) => {
    if (Math.abs(Math.log(each / value)) < Math.abs(Math.log(values[best]! / value))) {
      best = i;
    }
  });
  return best;
}

/** 1, 1.5, 2, 3, 5, 7 in each decade. */
export function decades(low: number, high: number): number[] {
  const values: number[] = [];
  for (let power = 10 ** Math.floor(Math.log10(low)); power <= high; power *= 10) {
    for (const factor of [1, 1.5, 2, 3, 5, 7]) {
      const value = Number((factor * power).toPrecision(2));
      if (value >= low && value <= high) {
        values.push(value);
      }
    }
  }
  return values;
}
