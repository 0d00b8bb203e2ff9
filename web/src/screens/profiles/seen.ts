/**
 * What an unsaved profile would show, as the gateway judges it: globs, `!` leaves out, the last that matches decides, a
 * list of `!` only means all but those, and what is absent shows all. Rules of the policy are not looked at.
 */
import type { components } from "@/api";
import type { Entry } from "@/screens/entry/entry";

type ToolRow = components["schemas"]["ToolRow"];
type Meant = (...names: string[]) => boolean;

const ESCAPE = /[.+^${}()|\\\]]/g;

/** As Python's fnmatch reads it; a set that is not closed is a letter. */
function glob(pattern: string): RegExp {
  let out = "";
  for (let at = 0; at < pattern.length; at++) {
    const letter = pattern[at]!;
    const end = letter === "[" ? pattern.indexOf("]", at + 2) : -1;
    if (letter === "*") out += "[^]*";
    else if (letter === "?") out += "[^]";
    else if (letter === "[" && end > 0) {
      const inside = pattern.slice(at + 1, end).replace(/\\/g, "\\\\").replace(/\[/g, "\\[");
      out += `[${inside.startsWith("!") ? `^${inside.slice(1)}` : inside.replace(/^\^/, "\\^")}]`;
      at = end;
    } else out += letter === "[" ? "\\[" : letter.replace(ESCAPE, "\\$&");
  }
  try {
    return new RegExp(`^${out}$`, "u");
  } catch {
    return /$^/;
  }
}

export function patterns(list: unknown): Meant {
  if (!Array.isArray(list)) return () => true;
  const all = list.map(String).map((text) => ({ leaves: text.startsWith("!"), match: glob(text.replace(/^!/, "")) }));
  const lastResort = all.length > 0 && all.every((one) => one.leaves);
  const decide = (names: readonly string[]): boolean => {
    for (let at = all.length - 1; at >= 0; at--) if (names.some((name) => all[at]!.match.test(name))) return !all[at]!.leaves;
    return lastResort;
  };
  return (...names) => decide(names);
}

export interface Counts {
  servers: string[];
  tools: ToolRow[];
  tokens: number;
}

export function seenThrough(profile: Entry, servers: readonly string[], tools: readonly ToolRow[]): Counts {
  const [server, tool] = [patterns(profile.servers ?? undefined), patterns(profile.tools ?? undefined)];
  const shown = tools.filter(
    (row) => !row.held && server(row.server) && tool(row.name, row.tool, `${row.server}.${row.tool}`) && (profile.read_only !== true || row.read_only === true),
  );
  return { servers: servers.filter((name) => server(name)), tools: shown, tokens: shown.reduce((sum, row) => sum + row.tokens, 0) };
}
