// SPDX-License-Identifier: Apache-2.0

const significant = (value: number): string => {
  const digits = value === 0 ? 0 : Math.floor(Math.log10(Math.abs(value)));
  return value.toFixed(Math.max(0, Math.min(3, 2 - digits)));
};

/** Three significant digits and the unit that suits: `41.2 ms`. */
export function time(seconds: number): string {
  const size = Math.abs(seconds);
  if (size === 0) {
    return '0 s';
  }
  if (size < 1e-6) {
    return `${significant(seconds * 1e9)} ns`;
  }
  if (size < 1e-3) {
    return `${significant(seconds * 1e6)} µs`;
  }
  return size < 1 ? `${significant(seconds * 1e3)} ms` : `${significant(seconds)} s`;
}

export const timeNs = (ns: number): string => time(ns * 1e-9);

/** As the rest of Stretto: powers of 1024. */
export function bytes(count: number): string {
  if (count <= 0) {
    return '?';
  }
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = count;
  let unit = 0;
  while (value >= 1024 && unit + 1 < units.length) {
    value /= 1024;
    unit++;
  }
  return `${unit === 0 ? value : significant(value)} ${units[unit]}`;
}

export const percent = (ratio: number): string => `${(100 * ratio).toFixed(1)} %`;

/** `n/a` where there is nothing to say. */
export const or = <T>(value: T | null | undefined, format: (value: T) => string): string =>
  value === null || value === undefined ? 'n/a' : format(value);

/** Powers of 1000, as links are sold. */
export function rate(bytesPerSecond: number): string {
  const units = ['B/s', 'kB/s', 'MB/s', 'GB/s', 'TB/s'];
  let value = bytesPerSecond;
  let unit = 0;
  while (value >= 1000 && unit + 1 < units.length) {
    value /= 1000;
    unit++;
  }
  return `${significant(value)} ${units[unit]}`;
}
