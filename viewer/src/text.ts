// SPDX-License-Identifier: Apache-2.0
import { en, type Texts } from './text/en';
import { zh } from './text/zh';

export type { Texts };
/** Every text in every language: one that is missing does not compile. */
export const texts: Record<string, Texts> = { en, zh };
