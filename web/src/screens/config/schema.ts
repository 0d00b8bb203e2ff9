/** What the JSON Schema of the configuration says about a place in it. */
export interface Schema {
  $ref?: string;
  $defs?: Record<string, Schema>;
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
  type?: string | string[];
  enum?: unknown[];
  const?: unknown;
  default?: unknown;
  description?: string;
  properties?: Record<string, Schema | boolean>;
  additionalProperties?: Schema | boolean;
  items?: Schema | boolean;
  required?: string[];
}

const isSchema = (value: Schema | boolean | undefined): value is Schema => typeof value === "object";

/** All that one may be, references followed. */
function variants(root: Schema, schema: Schema, depth = 0): Schema[] {
  if (depth > 8) return [];
  if (schema.$ref) {
    const named = root.$defs?.[schema.$ref.replace("#/$defs/", "")];
    return named ? variants(root, named, depth + 1) : [];
  }
  const inside = [...(schema.anyOf ?? []), ...(schema.oneOf ?? []), ...(schema.allOf ?? [])];
  return [schema, ...inside.flatMap((one) => variants(root, one, depth + 1))];
}

export function schemasAt(root: Schema, path: readonly string[]): Schema[] {
  let now = [root];
  for (const key of path) {
    now = now
      .flatMap((one) => variants(root, one))
      .flatMap((one) => {
        const next = key === "[]" ? one.items : (one.properties?.[key] ?? one.additionalProperties);
        return isSchema(next) ? [next] : [];
      });
  }
  return now;
}

export interface Known {
  name: string;
  description: string;
  type: string;
  fallback: string | null;
  required: boolean;
  /** What stands below it, not beside it. */
  nested: "map" | "list" | null;
}

function told(root: Schema, schema: Schema, name: string, required: boolean): Known {
  const all = variants(root, schema);
  const types = new Set(all.flatMap((one) => one.type ?? []).filter((type) => type !== "null"));
  const words = all.flatMap((one) => one.enum ?? []);
  const nested = all.some((one) => one.properties) || (types.has("object") && types.size === 1) ? "map" : types.has("array") && !types.has("string") ? "list" : null;
  return {
    name,
    description: schema.description ?? all.find((one) => one.description)?.description ?? "",
    type: words.length ? words.map(String).join(" | ") : [...types].join(" | "),
    fallback: schema.default === undefined || schema.default === null ? null : JSON.stringify(schema.default),
    required,
    nested,
  };
}

export function keysAt(root: Schema, path: readonly string[]): Known[] {
  const found = new Map<string, Known>();
  for (const one of schemasAt(root, path).flatMap((schema) => variants(root, schema))) {
    for (const [name, inside] of Object.entries(one.properties ?? {})) {
      if (isSchema(inside) && !found.has(name)) found.set(name, told(root, inside, name, !!one.required?.includes(name)));
    }
  }
  return [...found.values()];
}

export function keyAt(root: Schema, path: readonly string[], name: string): Known | undefined {
  return keysAt(root, path).find((one) => one.name === name);
}

export function valuesAt(root: Schema, path: readonly string[]): string[] {
  const all = schemasAt(root, path).flatMap((schema) => variants(root, schema));
  const words = all.flatMap((one) => [...(one.enum ?? []), ...(one.const === undefined ? [] : [one.const])]).map(String);
  const flags = all.some((one) => one.type === "boolean" || (Array.isArray(one.type) && one.type.includes("boolean") && !one.type.includes("number"))) ? ["true", "false"] : [];
  return [...new Set([...words, ...flags])];
}
