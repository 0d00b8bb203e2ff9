/**
 * Fails when a text is missing in a language, differs in its placeholders, cannot be compiled, or uses what
 * `src/shell/compile.ts` does not know. The English of the gateway's own sentences is the gateway's.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { baseCompile } from "@intlify/message-compiler";

const LANGUAGES = ["en", "zh-CN"];
const folders = ["src/parts", "src/schemaform", "src/shell", ...readdirSync("src/screens").map((name) => join("src/screens", name))];
const faults = [];

function flat(value, path = "", into = new Map()) {
  for (const [key, inner] of Object.entries(value)) {
    const name = path ? `${path}.${key}` : key;
    if (typeof inner === "string") into.set(name, inner);
    else flat(inner, name, into);
  }
  return into;
}

const names = (text) => [...new Set([...text.matchAll(/(?<!\$)\{(\w+)\}/g)].map((found) => found[1]))].sort().join(" ");

const SENTENCES = ["../src/mcpx/admin/sentences.json", "src/said/zh-CN.json"];

for (const files of [SENTENCES, ...folders.map((folder) => LANGUAGES.map((language) => join(folder, `${language}.json`)))]) {
  if (!files.some(existsSync)) continue;
  const [first, ...others] = files.map((file) => (existsSync(file) ? flat(JSON.parse(readFileSync(file, "utf8"))) : new Map()));
  others.forEach((other, at) => {
    for (const key of first.keys()) if (!other.has(key)) faults.push(`${files[at + 1]}: ${key} is missing`);
    for (const key of other.keys()) if (!first.has(key)) faults.push(`${files[0]}: ${key} is missing`);
    for (const [key, text] of first)
      if (other.has(key) && names(text) !== names(other.get(key))) faults.push(`${files[at + 1]}: ${key} has other placeholders than in English`);
  });
  for (const [at, texts] of [first, ...others].entries())
    for (const [key, text] of files[at] === SENTENCES[0] ? [] : texts) {
      baseCompile(text, { onError: (error) => faults.push(`${files[at]}: ${key}: ${error.message}`) });
      if (/@[:.]|\{\s|\s\}|\{\d|\{'[^']*[|\\]/.test(text)) faults.push(`${files[at]}: ${key}: only {name}, {'literal'} and | are known`);
    }
}

for (const fault of faults) console.error(fault);
process.exit(faults.length ? 1 : 0);
