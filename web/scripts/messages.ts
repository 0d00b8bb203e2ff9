/**
 * Collects the texts of one language: `src/screens/<screen>/<language>.json` stands under `<screen>.`, those of the
 * parts, of the schema form and of the shell under `parts.`, `schemaform.` and `shell.`. Each language becomes one chunk, loaded when it is chosen.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Plugin } from "vite";

const PREFIX = "virtual:messages/";

function folders(root: string): [string, string][] {
  const screens = join(root, "src/screens");
  return [
    ["parts", join(root, "src/parts")],
    ["schemaform", join(root, "src/schemaform")],
    ["shell", join(root, "src/shell")],
    ...readdirSync(screens)
      .sort()
      .map((name): [string, string] => [name, join(screens, name)]),
  ];
}

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
      const language = id.slice(PREFIX.length + 1);
      const all: Record<string, unknown> = {};
      for (const [name, folder] of folders(root)) {
        const file = join(folder, `${language}.json`);
        if (!existsSync(file)) continue;
        this.addWatchFile(file);
        all[name] = JSON.parse(readFileSync(file, "utf8"));
      }
      return `export default ${JSON.stringify(all)}`;
    },
  };
}
