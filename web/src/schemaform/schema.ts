/**
 * JSON Schema as far as a form needs it: references followed, `allOf` laid together. What is foreign may be anything, so
 * nothing here trusts a schema to be well formed, and loops of references end.
 */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type Fields = { [key: string]: Json };

export interface SchemaObject {
  type?: string | string[];
  title?: string;
  description?: string;
  default?: Json;
  examples?: Json[];
  enum?: Json[];
  const?: Json;
  format?: string;
  pattern?: string;
  minLength?: number;
  maxLength?: number;
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number | boolean;
  exclusiveMaximum?: number | boolean;
  multipleOf?: number;
  items?: Schema | Schema[];
  prefixItems?: Schema[];
  minItems?: number;
  maxItems?: number;
  uniqueItems?: boolean;
  properties?: Record<string, Schema>;
  required?: string[];
  additionalProperties?: Schema;
  minProperties?: number;
  maxProperties?: number;
  dependentRequired?: Record<string, string[]>;
  oneOf?: Schema[];
  anyOf?: Schema[];
  allOf?: Schema[];
  nullable?: boolean;
  contentMediaType?: string;
  $ref?: string;
  [other: string]: unknown;
}
export type Schema = boolean | SchemaObject;

/** So deep go references and `allOf` at one place before they are taken for a loop. */
const DEEPEST = 16;
/** So many of them are followed for one place: those within those multiply. */
const MOST_STEPS = 1_000;

export const isFields = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null && !Array.isArray(value);
/** Only what an object has itself: a field may be called `__proto__` or `toString`. */
export const own = <T>(object: Record<string, T> | undefined, key: string): T | undefined =>
  object !== undefined && Object.hasOwn(object, key) ? object[key] : undefined;

const asObject = (schema: unknown): SchemaObject => {
  if (isFields(schema)) return schema as SchemaObject;
  return schema === false ? { enum: [] } : {};
};

/** What `#/$defs/x` stands for; nothing for other documents and for what is not there. */
function pointed(ref: string, root: Schema): unknown {
  if (ref === "#") return root;
  if (!ref.startsWith("#/")) return undefined;
  let at: unknown = root;
  for (const step of ref.slice(2).split("/")) {
    let key = step;
    try {
      key = decodeURIComponent(step);
    } catch {
      // Not encoded, then.
    }
    key = key.replaceAll("~1", "/").replaceAll("~0", "~");
    if (Array.isArray(at)) at = at[Number(key)];
    else if (isFields(at)) at = own(at, key);
    else return undefined;
  }
  return at;
}

const listed = <T>(value: T[] | undefined): T[] => (Array.isArray(value) ? value : []);

/** Both at once: fields of `more` win, properties and required names are joined. */
export function together(base: SchemaObject, more: SchemaObject): SchemaObject {
  const both: SchemaObject = { ...base, ...more };
  if (base.properties || more.properties) both.properties = { ...asObject(base.properties), ...asObject(more.properties) } as Record<string, Schema>;
  if (base.required || more.required) both.required = [...new Set([...listed(base.required), ...listed(more.required)])];
  return both;
}

const known = new WeakMap<SchemaObject, SchemaObject>();

function follow(schema: unknown, root: Schema, steps: { left: number }, deep = 0): SchemaObject {
  const given = asObject(schema);
  if (typeof given.$ref !== "string" && !Array.isArray(given.allOf)) return given;
  if (deep > DEEPEST || --steps.left < 0) return {};
  let all: SchemaObject = { ...given };
  delete all.$ref;
  delete all.allOf;
  if (typeof given.$ref === "string") {
    const target = pointed(given.$ref, root);
    if (target !== undefined) all = together(follow(target, root, steps, deep + 1), all);
  }
  for (const part of listed(given.allOf)) all = together(follow(part, root, steps, deep + 1), all);
  return all;
}

/** The schema at this place, with its references followed and its `allOf` laid together. */
export function resolved(schema: Schema | undefined, root: Schema): SchemaObject {
  if (!isFields(schema)) return asObject(schema ?? true);
  const before = known.get(schema);
  if (before) return before;
  const found = follow(schema, root, { left: MOST_STEPS });
  known.set(schema, found);
  return found;
}

/** The types it allows, `null` apart. */
export function typesOf(schema: SchemaObject): { types: string[]; nullable: boolean } {
  const told = Array.isArray(schema.type) ? schema.type : typeof schema.type === "string" ? [schema.type] : [];
  return { types: told.filter((type) => type !== "null"), nullable: told.includes("null") || schema.nullable === true };
}

export const typeName = (value: Json | undefined): string => {
  if (value === undefined) return "undefined";
  if (value === null) return "null";
  if (Array.isArray(value)) return "array";
  return typeof value;
};
