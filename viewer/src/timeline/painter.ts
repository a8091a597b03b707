// SPDX-License-Identifier: Apache-2.0
// What the timeline is drawn with: a canvas, or SVG to be saved.

export interface Palette {
  background: string;
  text: string;
  faint: string;
  line: string;
  selected: string;
  forward: string;
  backward: string;
  optimizer: string;
  compute: string;
  communication: string;
  exposed: string;
  stripe: string;
  wait: string;
  copy: string;
}

/** The page's own colours, as its style sheet has them now. */
export function palette(): Palette {
  const style = getComputedStyle(document.documentElement);
  const of = (name: string): string => style.getPropertyValue(`--${name}`).trim();
  return {
    background: of('surface'),
    text: of('text'),
    faint: of('faint'),
    line: of('line'),
    selected: of('text'),
    forward: of('forward'),
    backward: of('backward'),
    optimizer: of('optimizer'),
    compute: of('compute'),
    communication: of('hidden'),
    exposed: of('exposed'),
    stripe: of('stripe'),
    wait: of('idle'),
    copy: of('copy'),
  };
}

export interface Painter {
  rect(x: number, y: number, width: number, height: number, fill: string, opacity?: number): void;
  hatch(x: number, y: number, width: number, height: number): void;
  outline(x: number, y: number, width: number, height: number, stroke: string): void;
  line(x1: number, y1: number, x2: number, y2: number, stroke: string): void;
  text(x: number, y: number, text: string, fill: string, align: 'left' | 'right', most?: number): void;
}

const font = '11px system-ui, "Noto Sans CJK SC", sans-serif';
/** Of the font above, near enough to cut a name that is too long. */
const letter = 6.2;

function cut(text: string, most: number | undefined): string {
  // What turns the direction of writing, or is no character at all, has no place in a picture.
  const plain = text.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, '\ufffd');
  const room = most === undefined ? 200 : Math.floor(most / letter);
  return plain.length <= room ? plain : room < 4 ? '' : `${plain.slice(0, room - 1)}…`;
}

export class CanvasPainter implements Painter {
  private readonly pattern: CanvasPattern | string;

  constructor(
    private readonly context: CanvasRenderingContext2D,
    colors: Palette,
  ) {
    const tile = document.createElement('canvas');
    tile.width = tile.height = 6;
    const small = tile.getContext('2d')!;
    small.fillStyle = colors.exposed;
    small.fillRect(0, 0, 6, 6);
    small.strokeStyle = colors.stripe;
    small.lineWidth = 1.5;
    small.beginPath();
    for (const x of [-6, 0, 6]) {
      small.moveTo(x, 6);
      small.lineTo(x + 6, 0);
    }
    small.stroke();
    this.pattern = context.createPattern(tile, 'repeat') ?? colors.exposed;
    context.font = font;
    context.textBaseline = 'middle';
  }

  rect(x: number, y: number, width: number, height: number, fill: string, opacity = 1): void {
    this.context.globalAlpha = opacity;
    this.context.fillStyle = fill;
    this.context.fillRect(x, y, width, height);
    this.context.globalAlpha = 1;
  }

  hatch(x: number, y: number, width: number, height: number): void {
    this.context.fillStyle = this.pattern;
    this.context.fillRect(x, y, width, height);
  }

  outline(x: number, y: number, width: number, height: number, stroke: string): void {
    this.context.strokeStyle = stroke;
    this.context.lineWidth = 2;
    this.context.strokeRect(x, y, width, height);
  }

  line(x1: number, y1: number, x2: number, y2: number, stroke: string): void {
    this.context.strokeStyle = stroke;
    this.context.lineWidth = 1;
    this.context.beginPath();
    this.context.moveTo(x1, y1);
    this.context.lineTo(x2, y2);
    this.context.stroke();
  }

  text(x: number, y: number, text: string, fill: string, align: 'left' | 'right', most?: number): void {
    this.context.fillStyle = fill;
    this.context.textAlign = align;
    this.context.fillText(cut(text, most), x, y);
  }
}

export class SvgPainter implements Painter {
  private readonly parts: string[] = [];

  constructor(
    private readonly width: number,
    private readonly height: number,
    private readonly colors: Palette,
  ) {}

  rect(x: number, y: number, width: number, height: number, fill: string, opacity = 1): void {
    this.parts.push(
      `<rect x="${x.toFixed(2)}" y="${y.toFixed(1)}" width="${width.toFixed(2)}" height="${height.toFixed(1)}" ` +
        `fill="${fill}"${opacity < 1 ? ` fill-opacity="${opacity.toFixed(2)}"` : ''}/>`,
    );
  }

  hatch(x: number, y: number, width: number, height: number): void {
    this.rect(x, y, width, height, 'url(#hatch)');
  }

  outline(x: number, y: number, width: number, height: number, stroke: string): void {
    this.parts.push(
      `<rect x="${x.toFixed(2)}" y="${y.toFixed(1)}" width="${width.toFixed(2)}" height="${height.toFixed(1)}" ` +
        `fill="none" stroke="${stroke}" stroke-width="2"/>`,
    );
  }

  line(x1: number, y1: number, x2: number, y2: number, stroke: string): void {
    this.parts.push(`<path d="M${x1.toFixed(2)} ${y1.toFixed(1)}L${x2.toFixed(2)} ${y2.toFixed(1)}" stroke="${stroke}"/>`);
  }

  text(x: number, y: number, text: string, fill: string, align: 'left' | 'right', most?: number): void {
    const escaped = cut(text, most).replaceAll('&', '&amp;').replaceAll('<', '&lt;');
    this.parts.push(
      `<text x="${x.toFixed(1)}" y="${(y + 4).toFixed(1)}" fill="${fill}"${align === 'right' ? ' text-anchor="end"' : ''}>${escaped}</text>`,
    );
  }

  file(): string {
    const { width, height, colors } = this;
    return (
      `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" font-size="11" font-family="system-ui, sans-serif">` +
      '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">' +
      `<rect width="6" height="6" fill="${colors.exposed}"/><rect width="2" height="6" fill="${colors.stripe}"/></pattern></defs>` +
      `<rect width="${width}" height="${height}" fill="${colors.background}"/>${this.parts.join('\n')}</svg>\n`
    );
  }
}
