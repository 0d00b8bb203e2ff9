/** Completion and explanation in the editor, from the JSON Schema of the configuration. */
import type { Completion, CompletionContext, CompletionResult } from "@codemirror/autocomplete";
import { syntaxTree } from "@codemirror/language";
import type { EditorState, Extension } from "@codemirror/state";
import { hoverTooltip } from "@codemirror/view";
import { keyAt, keysAt, valuesAt, type Known, type Schema } from "./schema";
import { spotIn, type Spot } from "./place";

export interface AssistWords {
  fallback: (value: string) => string;
  required: string;
}

function linesUpTo(state: EditorState, line: number): string[] {
  const lines: string[] = [];
  for (let at = 1; at <= line; at++) lines.push(state.doc.line(at).text);
  return lines;
}

function yamlSpot(state: EditorState, at: number): Spot {
  const line = state.doc.lineAt(at);
  const spot = spotIn(linesUpTo(state, line.number), line.number - 1, at - line.from);
  return { ...spot, from: line.from + spot.from };
}

function jsonSpot(state: EditorState, at: number): Spot | null {
  const path: string[] = [];
  let node = syntaxTree(state).resolveInner(at, -1);
  const word = node;
  const inName = node.name === "PropertyName";
  for (;;) {
    const parent = node.parent;
    if (!parent) break;
    if (parent.name === "Property" && node.name !== "PropertyName") {
      const name = parent.getChild("PropertyName");
      if (name) path.unshift(state.sliceDoc(name.from + 1, name.to - 1));
    } else if (parent.name === "Array") path.unshift("[]");
    node = parent;
  }
  const quoted = inName || word.name === "String";
  if (!quoted) return null;
  const key = !inName && path.at(-1) !== "[]" ? (path.pop() ?? null) : null;
  return { path, key, from: word.from + 1 };
}

const spotAt = (state: EditorState, at: number, format: string): Spot | null => (format === "json" ? jsonSpot(state, at) : yamlSpot(state, at));

function explained(known: Known, words: AssistWords): HTMLElement {
  const box = document.createElement("div");
  box.className = "config-explained";
  const head = document.createElement("p");
  const name = document.createElement("strong");
  name.textContent = known.name;
  head.append(name, ` ${known.type}`);
  box.append(head);
  const lines = [known.description, known.required ? words.required : known.fallback === null ? "" : words.fallback(known.fallback)];
  for (const line of lines.filter(Boolean)) {
    const row = document.createElement("p");
    row.textContent = line;
    box.append(row);
  }
  return box;
}

function completion(known: Known, format: string, indent: string, words: AssistWords): Completion {
  const below = known.nested === "list" ? `:\n${indent}  - ` : known.nested === "map" ? `:\n${indent}  ` : ": ";
  return {
    label: known.name,
    type: "property",
    detail: known.type.length > 40 ? `${known.type.slice(0, 40)}…` : known.type,
    apply: format === "json" ? known.name : known.name + below,
    boost: known.required ? 2 : 0,
    info: () => explained(known, words),
  };
}

export function completing(schema: () => Promise<Schema>, format: string, words: AssistWords) {
  return async (context: CompletionContext): Promise<CompletionResult | null> => {
    const root = await schema();
    const spot = context.aborted ? null : spotAt(context.state, context.pos, format);
    if (!spot) return null;
    const line = context.state.doc.lineAt(context.pos);
    const typed = context.state.sliceDoc(spot.from, context.pos);
    if (!context.explicit && !typed && spot.key === null) return null;
    if (spot.key !== null) {
      const options = valuesAt(root, [...spot.path, spot.key]).map((label): Completion => ({ label, type: "enum" }));
      return options.length ? { from: spot.from, options, validFor: /^[\w-]*$/ } : null;
    }
    const indent = " ".repeat(spot.from - line.from);
    const options = keysAt(root, spot.path).map((known) => completion(known, format, indent, words));
    const values = valuesAt(root, spot.path).map((label): Completion => ({ label, type: "enum" }));
    return options.length || values.length ? { from: spot.from, options: [...options, ...values], validFor: /^[\w$-]*$/ } : null;
  };
}

export function explaining(schema: () => Promise<Schema>, format: string, words: AssistWords): Extension {
  return hoverTooltip(async (view, at) => {
    const word = view.state.wordAt(at);
    if (!word) return null;
    const root = await schema();
    if (word.to > view.state.doc.length) return null;
    const line = view.state.doc.lineAt(at);
    const name = view.state.sliceDoc(word.from, word.to);
    const behind = view.state.sliceDoc(word.to, line.to);
    if (!/^["']?\s*:/.test(behind)) return null;
    const spot = spotAt(view.state, format === "json" ? word.to : word.from, format);
    const known = spot && keyAt(root, spot.path, name);
    return known ? { pos: word.from, end: word.to, above: true, create: () => ({ dom: explained(known, words) }) } : null;
  });
}
