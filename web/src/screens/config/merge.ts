/**
 * Two edits of one text, put together line by line. Where both changed the same lines, both versions stand in the text
 * between marks: the check then fails there until somebody chose.
 */
import { diffLines } from "@/parts";

interface Change {
  /** Lines of the base that it replaces: from, up to but without. */
  from: number;
  to: number;
  lines: string[];
}

export interface Merged {
  text: string;
  /** Places that somebody has to choose at. */
  overlaps: number;
}

const linesOf = (text: string): string[] => (text === "" ? [] : text.replace(/\n$/, "").split("\n"));

function changes(base: string, other: string): Change[] {
  const found: Change[] = [];
  let open: Change | null = null;
  let at = 0;
  for (const line of diffLines(base, other)) {
    if (line.kind === "same") {
      open = null;
      at++;
      continue;
    }
    if (!open) found.push((open = { from: at, to: at, lines: [] }));
    if (line.kind === "del") open.to = ++at;
    else open.lines.push(line.pieces.map((piece) => piece.text).join(""));
  }
  return found;
}

const applied = (base: readonly string[], from: number, to: number, all: readonly Change[]): string[] => {
  const out: string[] = [];
  let at = from;
  for (const one of all) {
    out.push(...base.slice(at, one.from), ...one.lines);
    at = one.to;
  }
  return [...out, ...base.slice(at, to)];
};

export function merge(base: string, mine: string, theirs: string, marks: { mine: string; theirs: string }): Merged {
  const lines = linesOf(base);
  const both = [
    ...changes(base, mine).map((change) => ({ change, own: true })),
    ...changes(base, theirs).map((change) => ({ change, own: false })),
  ].sort((a, b) => a.change.from - b.change.from || a.change.to - b.change.to);
  const out: string[] = [];
  let [at, overlaps] = [0, 0];
  for (let next = 0; next < both.length; ) {
    const [from, group] = [both[next]!.change.from, [both[next]!]];
    let to = both[next]!.change.to;
    while (++next < both.length) {
      const { change } = both[next]!;
      // Two insertions at one place touch as well: nobody can tell which comes first.
      if (change.from > to || (change.from === to && to > from && change.to > change.from)) break;
      group.push(both[next]!);
      to = Math.max(to, change.to);
    }
    out.push(...lines.slice(at, from));
    const side = (own: boolean) => applied(lines, from, to, group.filter((one) => one.own === own).map((one) => one.change));
    const [ours, other] = [side(true), side(false)];
    if (!group.some((one) => !one.own) || ours.join("\n") === other.join("\n")) out.push(...ours);
    else if (!group.some((one) => one.own)) out.push(...other);
    else {
      overlaps++;
      out.push(`<<<<<<< ${marks.mine}`, ...ours, "=======", ...other, `>>>>>>> ${marks.theirs}`);
    }
    at = to;
  }
  return { text: [...out, ...lines.slice(at)].map((line) => `${line}\n`).join(""), overlaps };
}
