/**
 * Writes `<asset>.gz` beside every built asset above 1 KB. The packer is written in JavaScript and no time goes into
 * the header, so that every machine writes the same bytes.
 */
import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "fflate";
import type { Plugin } from "vite";

const WORTH_IT = 1024;
const PACKABLE = /\.(js|css|html|svg|json)$/;

export function compressed(): Plugin {
  let out = "";
  return {
    name: "mcpx-compressed",
    apply: "build",
    configResolved(config) {
      out = join(config.root, config.build.outDir);
    },
    closeBundle() {
      for (const entry of readdirSync(out, { recursive: true, encoding: "utf8" })) {
        const file = join(out, entry);
        // index.html gets a nonce with every answer, so it is never sent as packed here.
        if (!PACKABLE.test(entry) || entry === "index.html" || statSync(file).size <= WORTH_IT) continue;
        writeFileSync(`${file}.gz`, gzipSync(readFileSync(file), { level: 9, mem: 12, mtime: 0 }));
      }
    },
  };
}
