/**
 * The geometry of the flow: where each band begins and ends, and how wide it is. Widths follow calls per minute; what
 * is idle or broken is a dotted line.
 */
import type { Hue } from "@/parts";

export interface End {
  /** The middle of its card or row, in px from the top. */
  at: number;
  rate: number;
  /** Of a dotted line; bands of traffic have the accent. */
  hue: Hue;
}

export interface Band {
  /** A closed shape for traffic, an open curve for a dotted line. */
  path: string;
  dotted: boolean;
  hue: Hue;
}

const WIDEST = 30;
const NARROWEST = 1.5;
const GAP = 3;
const DOTTED_GAP = 9;

/**
 * Bands from `ends` to the gateway, whose side has its middle at `middle`; x runs from 0 (ends) to 100 (gateway), or
 * the other way round with `mirrored`.
 */
export function bands(ends: readonly End[], middle: number, mirrored: boolean): Band[] {
  const total = ends.reduce((sum, end) => sum + end.rate, 0);
  const widths = ends.map((end) => (end.rate > 0 ? Math.max(NARROWEST, (end.rate / total) * Math.min(WIDEST + total / 4, 60)) : 0));
  const room = widths.reduce((sum, width) => sum + (width || DOTTED_GAP - GAP) + GAP, -GAP);
  let top = middle - room / 2;
  return ends.map((end, at) => {
    const width = widths[at]!;
    const inner = top + (width || DOTTED_GAP - GAP) / 2;
    top += (width || DOTTED_GAP - GAP) + GAP;
    const [x0, x1] = mirrored ? [100, 0] : [0, 100];
    if (!width) return { path: `M${x0} ${end.at}C50 ${end.at} 50 ${inner} ${x1} ${inner}`, dotted: true, hue: end.hue };
    const half = width / 2;
    return {
      path:
        `M${x0} ${end.at - half}C50 ${end.at - half} 50 ${inner - half} ${x1} ${inner - half}` +
        `L${x1} ${inner + half}C50 ${inner + half} 50 ${end.at + half} ${x0} ${end.at + half}Z`,
      dotted: false,
      hue: end.hue,
    };
  });
}
