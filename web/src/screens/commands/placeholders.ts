/** The `{names}` of a command, wherever they stand. */
import type { Fields, Json } from "@/schemaform";

const NAME = /(?<![{$])\{([A-Za-z_][\w-]*)\}(?!\})/g;

export function placeholdersOf(value: Json | undefined, into = new Set<string>()): Set<string> {
  if (typeof value === "string") for (const found of value.matchAll(NAME)) into.add(found[1]!);
  else if (Array.isArray(value)) for (const item of value) placeholdersOf(item, into);
  else if (value !== null && typeof value === "object") for (const inner of Object.values(value)) placeholdersOf(inner, into);
  return into;
}

const PLACES: Record<string, string[]> = { http: ["url", "params", "headers", "body"], script: ["args", "env", "stdin"] };

/** Those that no parameter declares. */
export function undeclared(entry: Fields): string[] {
  const action = (entry[String(entry.type)] ?? {}) as Fields;
  const declared = new Set((Array.isArray(entry.parameters) ? entry.parameters : []).map((one) => (one as Fields).name));
  const found = new Set<string>();
  for (const place of PLACES[String(entry.type)] ?? []) placeholdersOf(action[place], found);
  return [...found].filter((name) => !declared.has(name));
}

/** The way to a value as JMESPath; positions in lists become "each". */
export const jmespath = (steps: readonly (string | number)[]): string =>
  steps.reduce<string>((path, step) => {
    if (typeof step === "number") return `${path}[]`;
    const name = /^[A-Za-z_]\w*$/.test(step) ? step : JSON.stringify(step);
    return path ? `${path}.${name}` : name;
  }, "");
