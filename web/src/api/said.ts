/**
 * The gateway's own sentences in the language of the page. Answers are English; beside such a sentence `said` tells its
 * code and what stands in its gaps, and `inOwnWords` puts the page's words in its place. A code that the page does not
 * know, and whatever strangers say, stays as it came.
 */
import type { components } from "./schema";

type Sentence = components["schemas"]["SentenceTold"];
type Values = Record<string, string>;
export type Said = Record<string, Sentence>;

interface Speaker {
  /** The words are there. */
  ready: () => Promise<void>;
  say: (code: string, values: Values) => string | null;
}

/** Where in answers there are more of ours. Nothing else is looked into: a server may call its fields as it likes. */
const OURS = ["calls", "clients", "commands", "auth_configs", "definitions", "errors", "files", "last_reload", "marks", "plan", "problems", "revisions", "servers", "spans", "waiting"];

let speaker: Speaker | null = null;

export function speakWith(other: Speaker): void {
  speaker = other;
}

export const wordsReady = async (): Promise<void> => speaker?.ready();

function worded(sentence: Sentence): string | null {
  const values: Values = {};
  for (const [name, value] of Object.entries(sentence.values ?? {})) {
    const text = typeof value === "string" ? value : worded(value);
    if (text === null) return null;
    values[name] = text;
  }
  return speaker?.say(sentence.code, values) ?? null;
}

/** The same object, its sentences in the words of the page. */
export function inOwnWords<T>(told: T): T {
  if (Array.isArray(told)) told.forEach(inOwnWords);
  else if (told && typeof told === "object") {
    const fields = told as Record<string, unknown>;
    for (const [place, sentence] of Object.entries((fields.said ?? {}) as Said)) {
      const words = worded(sentence);
      const path = place.split(".");
      const last = path.pop()!;
      const holder = path.reduce<Record<string, unknown>>((within, step) => within[step] as Record<string, unknown>, fields);
      if (words !== null) holder[last] = words;
    }
    for (const key of OURS) if (fields[key] && typeof fields[key] === "object") inOwnWords(fields[key]);
  }
  return told;
}
