/** Fails on what the Content-Security-Policy or the promise "foreign text stays text" forbids in sources. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

const FORBIDDEN = [
  [/\bv-html\b/, "v-html: foreign text must stay text"],
  [/\.(innerHTML|outerHTML)\b|insertAdjacentHTML/, "writes HTML: foreign text must stay text"],
  [/<[a-zA-Z][^>]*\sstyle="/, 'style="…" is refused by the CSP; use a class or :style'],
  [/\bnew Function\(|\beval\(/, "evaluates text: refused by the CSP"],
];

const faults = [];
for (const entry of readdirSync("src", { recursive: true, encoding: "utf8" })) {
  if (!/\.(vue|ts)$/.test(entry)) continue;
  readFileSync(join("src", entry), "utf8")
    .split("\n")
    .forEach((line, at) => {
      for (const [pattern, why] of FORBIDDEN) if (pattern.test(line)) faults.push(`src/${entry}:${at + 1}: ${why}`);
    });
}

for (const fault of faults) console.error(fault);
process.exit(faults.length ? 1 : 0);
