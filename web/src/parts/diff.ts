/** The difference of two texts: which lines stay, go and come, and in a changed line which words. */
export interface DiffPiece {
  text: string;
  changed: boolean;
}
export interface DiffLine {
  kind: "same" | "del" | "add";
  before: number | null;
  after: number | null;
  pieces: DiffPiece[];
}

type Step = ["same" | "del" | "add", number, number];

/** Myers' way through two lists; steps carry the places in both. */
function steps(a: readonly string[], b: readonly string[]): Step[] {
  const most = a.length + b.length;
  const furthest = new Map<number, number>([[1, 0]]);
  const trace: Map<number, number>[] = [];
  search: for (let cost = 0; cost <= most; cost++) {
    trace.push(new Map(furthest));
    for (let k = -cost; k <= cost; k += 2) {
      const down = k === -cost || (k !== cost && (furthest.get(k - 1) ?? -1) < (furthest.get(k + 1) ?? -1));
      let x = down ? (furthest.get(k + 1) ?? 0) : (furthest.get(k - 1) ?? 0) + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x++;
      furthest.set(k, x);
      if (x >= a.length && x - k >= b.length) break search;
    }
  }
  const way: Step[] = [];
  let [x, y] = [a.length, b.length];
  for (let cost = trace.length - 1; cost >= 0; cost--) {
    const reached = trace[cost]!;
    const k = x - y;
    const down = k === -cost || (k !== cost && (reached.get(k - 1) ?? -1) < (reached.get(k + 1) ?? -1));
    const fromX = reached.get(down ? k + 1 : k - 1) ?? 0;
    const fromY = fromX - (down ? k + 1 : k - 1);
    while (x > Math.max(fromX, 0) && y > Math.max(fromY, 0) && x > 0 && y > 0 && a[x - 1] === b[y - 1]) way.push(["same", --x, --y]);
    if (cost === 0) break;
    if (down) way.push(["add", x, --y]);
    else way.push(["del", --x, y]);
  }
  return way.reverse();
}

const words = (line: string) => line.match(/[\p{L}\p{N}_]+|\s+|./gu) ?? [];

function merged(pieces: DiffPiece[]): DiffPiece[] {
  const out: DiffPiece[] = [];
  for (const piece of pieces) {
    const last = out.at(-1);
    if (last && last.changed === piece.changed) last.text += piece.text;
    else out.push({ ...piece });
  }
  return out;
}

/** The pieces of two lines of which one may have replaced the other; null when they have little in common. */
function paired(before: string, after: string): [DiffPiece[], DiffPiece[]] | null {
  const [a, b] = [words(before), words(after)];
  if (a.length + b.length > 400) return null;
  const way = steps(a, b);
  const common = way.reduce((sum, [kind, x]) => sum + (kind === "same" ? a[x]!.trim().length : 0), 0);
  if (common * 3 < Math.min(before.trim().length, after.trim().length)) return null;
  return [
    merged(way.flatMap(([kind, x]) => (kind === "add" ? [] : [{ text: a[x]!, changed: kind === "del" }]))),
    merged(way.flatMap(([kind, , y]) => (kind === "del" ? [] : [{ text: b[y]!, changed: kind === "add" }]))),
  ];
}

/** Marks words in lines that replaced another; both lists keep their order, so a search never goes back. */
function markWords(gone: DiffLine[], come: DiffLine[]): void {
  let from = 0;
  for (const line of gone) {
    for (let at = from; at < Math.min(come.length, from + 8); at++) {
      const pieces = paired(line.pieces[0]!.text, come[at]!.pieces[0]!.text);
      if (!pieces) continue;
      [line.pieces, come[at]!.pieces] = pieces;
      from = at + 1;
      break;
    }
  }
}

const lines = (text: string) => (text === "" ? [] : text.replace(/\n$/, "").split("\n"));

export function diffLines(before: string, after: string): DiffLine[] {
  const [a, b] = [lines(before), lines(after)];
  const all = steps(a, b).map(
    ([kind, x, y]): DiffLine => ({
      kind,
      before: kind === "add" ? null : x + 1,
      after: kind === "del" ? null : y + 1,
      pieces: [{ text: kind === "add" ? b[y]! : a[x]!, changed: false }],
    }),
  );
  for (let at = 0; at < all.length; ) {
    if (all[at]!.kind === "same") {
      at++;
      continue;
    }
    const start = at;
    while (at < all.length && all[at]!.kind !== "same") at++;
    const block = all.slice(start, at).sort((one, two) => (one.kind === two.kind ? 0 : one.kind === "del" ? -1 : 1));
    all.splice(start, block.length, ...block);
    markWords(
      block.filter((line) => line.kind === "del"),
      block.filter((line) => line.kind === "add"),
    );
  }
  return all;
}
