/** The kinds of auth configs: their fields come from the gateway as JSON Schema, so that those of other packages work too. */
import type { components } from "@/api";
import { asEntry, isReference, type Entry } from "@/screens/entry/entry";
import type { FieldKind, FieldSpec } from "@/screens/entry/fields";

export type AuthRow = components["schemas"]["AuthRow"];
export type AuthType = components["schemas"]["AuthType"];

/** Written, never read again. */
const SECRETS = new Set(["value", "password", "token", "client_secret", "secret", "private_key", "api_key"]);

interface Schema {
  type?: string | string[];
  description?: string;
  default?: unknown;
  enum?: unknown[];
  anyOf?: Schema[];
}

const typesOf = (schema: Schema): string[] => [schema.type ?? [], ...(schema.anyOf ?? []).map((one) => one.type ?? [])].flat(2);
const choicesOf = (schema: Schema): string[] => (schema.enum ?? schema.anyOf?.find((one) => one.enum)?.enum ?? []).map(String);

function kindOf(key: string, schema: Schema): FieldKind {
  const types = typesOf(schema);
  if (choicesOf(schema).length) return "choice";
  if (types.includes("object")) return "map";
  if (types.includes("array")) return "list";
  if (types.includes("boolean")) return "flag";
  if (types.includes("number") || types.includes("integer")) return "number";
  return SECRETS.has(key) ? "secret" : "code";
}

/** `words(key)` gives the page's own label and hint for keys it knows. */
export function fieldsOf(kind: AuthType, words: (key: string) => { label?: string; hint?: string }): FieldSpec[] {
  const { properties, required } = kind.fields as { properties?: Record<string, Schema | true>; required?: string[] };
  return Object.entries(properties ?? {}).flatMap(([key, schema]): FieldSpec[] => {
    if (schema === true || key.startsWith("$")) return [];
    const known = words(key);
    const own = kindOf(key, schema);
    return [
      {
        path: `${kind.type}.${key}`,
        kind: own,
        label: known.label ?? key,
        hint: known.label ? known.hint : schema.description,
        type: key,
        required: required?.includes(key),
        fallback: schema.default === undefined ? undefined : String(schema.default),
        options: choicesOf(schema).map((value) => ({ value, label: value })),
        secret: own === "map" && key === "headers",
      },
    ];
  });
}

/** Of another kind: the section of the old one goes with its secrets. */
export const withKind = (entry: Entry, type: string): Entry => ({ name: entry.name ?? "", type, [type]: {} });

/** Whether what it needs is there, so that it can be judged. */
export const isBegun = (entry: Entry, fields: readonly FieldSpec[]): boolean =>
  !!entry.name && fields.every((field) => !field.required || hasValue(asEntry(entry[String(entry.type)])[field.type ?? ""]));

const hasValue = (value: unknown): boolean => (typeof value === "object" && value !== null ? Object.keys(value).length > 0 : value !== undefined && value !== "");

/** The environment variables that its secrets come from. */
export function variablesOf(entry: Entry): string[] {
  const found = new Set<string>();
  const walk = (value: unknown): void => {
    if (typeof value === "string" && isReference(value)) for (const one of value.matchAll(/\$\{(?:env:)?([A-Za-z_]\w*)/g)) found.add(one[1]!);
    else if (typeof value === "object" && value !== null) Object.values(value).forEach(walk);
  };
  walk(entry);
  return [...found];
}
