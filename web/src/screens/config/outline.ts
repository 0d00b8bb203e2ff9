/** The sections of a configuration and the entries in them, with their lines; of a text that may be half written. */
export interface Entry {
  name: string;
  line: number;
}
export interface Section extends Entry {
  entries: Entry[];
  /** The last line that belongs to it. */
  end: number;
}

export function outlineOf(text: string, format: string): Section[] {
  const sections = format === "json" ? ofJson(text) : ofYaml(text);
  const last = text.split("\n").length;
  sections.forEach((section, at) => (section.end = (sections[at + 1]?.line ?? last + 1) - 1));
  return sections;
}

/** Maps of settings, not of entries. */
const SETTINGS = new Set(["server", "naming", "policy", "global"]);
const plain = (name: string) => name.trim().replace(/^(["'])(.*)\1$/, "$2");

function ofYaml(text: string): Section[] {
  const sections: Section[] = [];
  let indent: number | null = null;
  let item: Entry | null = null;
  text.split("\n").forEach((line, at) => {
    const found = /^(\s*)(-\s+)?((?:"[^"]*"|'[^']*'|[^\s#:[\]{},-][^:#]*))\s*:(?:\s+(.*))?$/.exec(line);
    const dash = /^(\s*)-(\s|$)/.exec(line);
    const section = sections.at(-1);
    if (dash && section && !SETTINGS.has(section.name) && (indent === null || dash[1]!.length === indent)) {
      indent = dash[1]!.length;
      section.entries.push((item = { name: "", line: at + 1 }));
    }
    if (!found) return;
    const [, spaces, mark, key, value] = found;
    const column = spaces!.length + (mark?.length ?? 0);
    if (!mark && column === 0) {
      sections.push({ name: plain(key!), line: at + 1, entries: [], end: at + 1 });
      [indent, item] = [null, null];
    } else if (section && item && column === indent! + 2 && plain(key!) === "name" && value) item.name = plain(value.replace(/\s+#.*$/, ""));
    else if (section && !item && !mark && (indent === null || column === indent)) {
      indent = column;
      // A map of entries by name: what other programs write.
      if (!SETTINGS.has(section.name) && (value === undefined || value.trim() === "" || value.trim().startsWith("{"))) section.entries.push({ name: plain(key!), line: at + 1 });
    }
  });
  return sections.map((section) => ({ ...section, entries: section.entries.filter((entry) => entry.name) }));
}

function ofJson(text: string): Section[] {
  const sections: Section[] = [];
  const stack: { list: boolean; start: number }[] = [];
  let line = 1;
  let key: string | null = null;
  let word: string | null = null;
  for (let at = 0; at < text.length; at++) {
    const letter = text[at]!;
    if (letter === "\n") line++;
    else if (letter === "/" && text[at + 1] === "/") {
      const end = text.indexOf("\n", at);
      at = end < 0 ? text.length : end - 1;
    } else if (letter === "/" && text[at + 1] === "*") {
      const end = text.indexOf("*/", at + 2);
      const stop = end < 0 ? text.length : end + 1;
      line += text.slice(at, stop).split("\n").length - 1;
      at = stop;
    } else if (letter === '"') {
      let end = at + 1;
      while (end < text.length && text[end] !== '"' && text[end] !== "\n") end += text[end] === "\\" ? 2 : 1;
      word = text.slice(at + 1, end);
      at = end;
      const section = sections.at(-1);
      if (key === "name" && section && stack.length === 3 && stack[1]!.list) section.entries.push({ name: word, line: stack[2]!.start });
      key = null;
    } else if (letter === ":") {
      key = word;
      const section = sections.at(-1);
      if (stack.length === 1 && key !== null) sections.push({ name: key, line, entries: [], end: line });
      else if (stack.length === 2 && !stack[1]!.list && section && !SETTINGS.has(section.name) && key !== null && /^\s*\{/.test(text.slice(at + 1, at + 40))) section.entries.push({ name: key, line });
    } else if (letter === "{" || letter === "[") {
      stack.push({ list: letter === "[", start: line });
      key = null;
    } else if (letter === "}" || letter === "]") stack.pop();
  }
  return sections;
}
