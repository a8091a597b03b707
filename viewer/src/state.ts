// SPDX-License-Identifier: Apache-2.0
// What the page shows, in its address, so that it can be linked and the browser's Back works.

import type { Texts } from './text';
import type { Report, Run } from './data';
import { hasModel } from './model';
import { unpack, type Timeline } from './columns';

export const pageNames = ['overview', 'timeline', 'buckets', 'ranks', 'whatif', 'machine', 'learn', 'data'] as const;
export type PageName = (typeof pageNames)[number];

export class State {
  /** `p`: page, `run`, `t`: begin and end of the timeline's window in ms, `b`: bucket. */
  private hash = new URLSearchParams(location.hash.slice(1));
  private timelines = new Map<Run, Timeline>();

  constructor(
    readonly report: Report,
    public texts: Texts,
  ) {}

  read(): void {
    this.hash = new URLSearchParams(location.hash.slice(1));
  }

  /** Those there is something to show on: the page may have been built without what some reckon with. */
  get pages(): readonly PageName[] {
    return pageNames.filter((page) =>
      page === 'machine' ? (this.report.machines ?? []).length > 0 : (page !== 'whatif' && page !== 'learn') || hasModel(),
    );
  }

  get page(): PageName {
    const name = this.hash.get('p');
    return this.pages.find((page) => page === name) ?? 'overview';
  }

  get runIndex(): number {
    const index = Number(this.hash.get('run') ?? 0);
    return Number.isInteger(index) && index >= 0 && index < this.report.runs.length ? index : 0;
  }

  get run(): Run | undefined {
    return this.report.runs[this.runIndex];
  }

  get(key: string): string | null {
    return this.hash.get(key);
  }

  /** The address that shows this page of the same run. */
  link(page: PageName, more: Record<string, string> = {}): string {
    const hash = new URLSearchParams({ p: page });
    if (this.runIndex > 0) {
      hash.set('run', String(this.runIndex));
    }
    for (const [key, value] of Object.entries(more)) {
      hash.set(key, value);
    }
    return `#${hash}`;
  }

  /** Changes the address without a step of the browser's Back, and without drawing anything anew. */
  note(key: string, value: string | null): void {
    if (value === null) {
      this.hash.delete(key);
    } else {
      this.hash.set(key, value);
    }
    history.replaceState(null, '', `#${this.hash}`);
  }

  timeline(run: Run): Timeline {
    let timeline = this.timelines.get(run);
    if (timeline === undefined) {
      timeline = unpack(run.timeline);
      this.timelines.set(run, timeline);
    }
    return timeline;
  }
}
