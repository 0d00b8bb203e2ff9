/** The rows of the list of tools: filtered, grouped by server, ranked. Plain data, made once for each change. */
import type { components } from "@/api";

export type ToolRow = components["schemas"]["ToolRow"];

export interface Wish {
  words: string;
  server: string | null;
  readOnly: boolean;
  destructive: boolean;
  held: boolean;
}
export type ListRow = { kind: "group"; key: string; server: string; shown: number; all: number; folded: boolean } | { kind: "tool"; key: string; tool: ToolRow; score: number | null };

const wordsOf = (text: string) => text.toLowerCase().split(/\s+/).filter(Boolean).slice(0, 20);

/** What each tool is found by, in small letters. */
export const haystacks = (tools: readonly ToolRow[]): Map<string, string> =>
  new Map(tools.map((tool) => [tool.name, `${tool.name} ${tool.server} ${tool.title ?? ""} ${tool.description ?? ""}`.toLowerCase()]));

const passes = (tool: ToolRow, wish: Wish) =>
  (!wish.server || tool.server === wish.server) && (!wish.readOnly || tool.read_only === true) && (!wish.destructive || tool.destructive === true) && (!wish.held || tool.held === true);

/** Those that pass; by the ranking where `scores` is given, else by their words. */
export function chosen(tools: readonly ToolRow[], found: Map<string, string>, wish: Wish, scores: Map<string, number> | null): ToolRow[] {
  const words = wordsOf(wish.words);
  const some = tools.filter((tool) => passes(tool, wish) && (scores ? scores.has(tool.name) : words.every((word) => found.get(tool.name)?.includes(word))));
  return scores ? some.sort((a, b) => scores.get(b.name)! - scores.get(a.name)!) : some;
}

export function grouped(some: readonly ToolRow[], tools: readonly ToolRow[], folded: ReadonlySet<string>, scores: Map<string, number> | null): ListRow[] {
  const all = new Map<string, number>();
  for (const tool of tools) all.set(tool.server, (all.get(tool.server) ?? 0) + 1);
  const groups = new Map<string, ToolRow[]>();
  for (const tool of some) {
    const group = groups.get(tool.server);
    if (group) group.push(tool);
    else groups.set(tool.server, [tool]);
  }
  const rows: ListRow[] = [];
  for (const [server, members] of groups) {
    const isFolded = folded.has(server);
    rows.push({ kind: "group", key: `group ${server}`, server, shown: members.length, all: all.get(server) ?? members.length, folded: isFolded });
    if (!isFolded) for (const tool of members) rows.push({ kind: "tool", key: `tool ${tool.name}`, tool, score: scores?.get(tool.name) ?? null });
  }
  return rows;
}

export interface Piece {
  text: string;
  hit: boolean;
}

/** The text in pieces, those marked that are words of the query (or begin so: "requests" marks "request"). */
export function marked(text: string, query: string): Piece[] {
  const words = wordsOf(query).flatMap((word) => (word.length > 3 && word.endsWith("s") ? [word, word.slice(0, -1)] : word.length > 1 || /[^\x00-\x7f]/.test(word) ? [word] : []));
  if (!words.length) return [{ text, hit: false }];
  const pattern = new RegExp(`(${words.sort((a, b) => b.length - a.length).map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|")})`, "gi");
  return text
    .split(pattern)
    .map((piece, at) => ({ text: piece, hit: at % 2 === 1 }))
    .filter((piece) => piece.text !== "");
}
