/** Where in the structure of a half-written YAML text a place is: the keys above it, "[]" for an element of a list. */
export interface Spot {
  path: string[];
  /** The key of the line, if the place is behind its colon. */
  key: string | null;
  /** Where the word begins that is being written. */
  from: number;
}

interface Row {
  dash: number | null;
  column: number;
  key: string | null;
}

const LINE = /^(\s*)((?:-\s+)*)(?:("[^"]*"|'[^']*'|[^\s"'#:[\]{},][^:#]*?)\s*:(?=\s|$))?/;
const plain = (name: string) => name.replace(/^(["'])(.*)\1$/, "$2");

function rowOf(line: string): Row | null {
  if (!line.trim() || /^\s*#/.test(line)) return null;
  const [, spaces, dashes, key] = LINE.exec(line)!;
  const bare = /^\s*-$/.test(line);
  const dash = dashes || bare ? spaces!.length : null;
  return { dash, column: spaces!.length + (bare ? 2 : dashes!.length), key: key === undefined ? null : plain(key) };
}

/** `line` counts from 0, `column` too. */
export function spotIn(lines: readonly string[], line: number, column: number): Spot {
  const text = (lines[line] ?? "").slice(0, column);
  const [all, spaces, dashes, key] = LINE.exec(text)!;
  const behind = key !== undefined;
  const rest = behind ? text.slice(all.length) : text.slice(spaces!.length + dashes!.length);
  const from = behind ? all.length + /^\s*/.exec(rest)![0].length : spaces!.length + dashes!.length;
  const path: string[] = [];
  let limit = spaces!.length + dashes!.length;
  if (dashes) {
    path.unshift("[]");
    limit = spaces!.length + 1;
  }
  let inList = !!dashes;
  for (let at = line - 1; at >= 0 && limit > 0; at--) {
    const row = rowOf(lines[at]!);
    if (!row) continue;
    if (inList) {
      // The key of a list may stand in the same column as its dashes.
      if (row.dash !== null && row.dash >= limit - 1 && row.column >= limit) continue;
      if (row.key !== null && row.column < limit) {
        path.unshift(row.key);
        inList = false;
        limit = row.column;
        if (row.dash !== null) {
          path.unshift("[]");
          limit = row.dash + 1;
          inList = true;
        }
      }
      continue;
    }
    if (row.key !== null && row.column < limit) {
      path.unshift(row.key);
      limit = row.column;
      if (row.dash !== null) {
        path.unshift("[]");
        limit = row.dash + 1;
        inList = true;
      }
    } else if (row.dash !== null && row.dash < limit && row.column === limit) {
      path.unshift("[]");
      limit = row.dash + 1;
      inList = true;
    }
  }
  return { path, key: behind ? plain(key) : null, from };
}
