/**
 * Collects the texts of one language: `src/screens/<screen>/<language>.json` stands under `<screen>.`, those of the
 * parts, of the schema form and of the shell under `parts.`, `schemaform.` and `shell.`, the gateway's own sentences by
 * their codes under `said.`. Chunks: `first` has what the first page shows (parts, shell, the screens named in `first.ts`,
 * the navigation), `said` those sentences, `rest` everything else.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Plugin } from "vite";
import { FIRST } from "../src/shell/first.ts";

const PREFIX = "virtual:messages/";
const EARLY = new Set(["parts", "shell", ...FIRST]);

function folders(root: string): [string, string][] {
  const screens = join(root, "src/screens");
  return [
    ["parts", join(root, "src/parts")],
    ["said", join(root, "src/said")],
    ["schemaform", join(root, "src/schemaform")],
    ["shell", join(root, "src/shell")],
    ...readdirSync(screens)
      .sort()
      .map((name): [string, string] => [name, join(screens, name)]),
  ];
}

const pieceOf = (name: string): string => (EARLY.has(name) ? "first" : name === "said" ? "said" : "rest");

export function messages(): Plugin {
  let root = "";
  return {
    name: "mcpx-messages",
    configResolved(config) {
      root = config.root;
    },
    resolveId(id) {
      return id.startsWith(PREFIX) ? "\0" + id : null;
    },
    load(id) {
      if (!id.startsWith("\0" + PREFIX)) return null;
      const [language, piece] = id.slice(PREFIX.length + 1).split("/");
      const all: Record<string, object> = {};
      for (const [name, folder] of folders(root)) {
        const file = join(folder, `${language}.json`);
        if (!existsSync(file)) continue;
        this.addWatchFile(file);
        const { nav, ...texts } = JSON.parse(readFileSync(file, "utf8")) as { nav?: string };
        if (pieceOf(name) === piece) all[name] = texts;
        if (nav && piece === "first") all[name] = { nav, ...all[name] };
      }
      return `export default ${JSON.stringify(all)}`;
    },
  };
}
