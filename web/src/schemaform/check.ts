/**
 * What is wrong with a value, place by place, as it is typed. It finds what a person can mend in a form; the gateway has
 * the last word. Foreign patterns are only tried where they cannot take long.
 */
import { isFields, own, resolved, typeName, typesOf, type Fields, type Json, type Schema, type SchemaObject } from "./schema";
import { pointer, same } from "./values";

export interface Finding {
  /** A JSON pointer; "" is the whole value. */
  path: string;
  /** A text under `schemaform.check`. */
  code: string;
  params: Record<string, string | number>;
}

/** After so many steps the rest is left to the gateway: choices within choices multiply. */
const MOST_STEPS = 30_000;
const DEEPEST = 60;

const FORMATS: Record<string, RegExp> = {
  email: /^[^\s@]+@[^\s@]+$/,
  uri: /^[a-z][a-z0-9+.-]*:\S+$/i,
  url: /^[a-z][a-z0-9+.-]*:\S+$/i,
  uuid: /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i,
  date: /^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$/,
  "date-time": /^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d+)?)?([Zz]|[+-]\d\d:?\d\d)$/,
};

/** Nested or many repeats can take for ever on a short text: those are left to the gateway. */
function matches(pattern: string, text: string): boolean {
  const repeats = pattern.match(/[*+]|\{\d+,\}/g)?.length ?? 0;
  if (pattern.length > 500 || /\)[*+{]/.test(pattern) || repeats > 3 || text.length > (repeats > 1 ? 300 : 2_000)) return true;
  try {
    return new RegExp(pattern, "u").test(text);
  } catch {
    return true;
  }
}

const isOf = (value: Json, type: string): boolean => {
  const is = typeName(value);
  if (type === "integer") return is === "number" && Number.isInteger(value);
  return is === type;
};

class Check {
  readonly findings: Finding[] = [];

  constructor(
    private readonly root: Schema,
    private readonly steps = { left: MOST_STEPS },
  ) {}

  private say(path: string, code: string, params: Record<string, string | number> = {}): void {
    this.findings.push({ path, code, params });
  }

  value(schema: Schema | undefined, value: Json, path: string, deep = 0): void {
    if (--this.steps.left < 0 || deep > DEEPEST) return;
    const of = resolved(schema, this.root);
    const { types, nullable } = typesOf(of);
    if (value === null && nullable) return;
    if (types.length && !types.some((type) => isOf(value, type))) {
      if (value === null && this.choices(of)?.some((choice) => !find(choice, null, this.root, this.steps).length)) return;
      this.say(path, types.includes("integer") && typeof value === "number" ? "integer" : `type_${types.length === 1 ? types[0]! : "other"}`, { types: types.join(", ") });
      return;
    }
    if (of.const !== undefined && !same(of.const, value)) this.say(path, "const", { value: JSON.stringify(of.const) });
    if (Array.isArray(of.enum) && !of.enum.some((one) => same(one, value))) this.say(path, "enum", { values: of.enum.slice(0, 12).map((one) => JSON.stringify(one)).join(", ") });
    if (typeof value === "string") this.text(of, value, path);
    else if (typeof value === "number") this.number(of, value, path);
    else if (Array.isArray(value)) this.list(of, value, path, deep);
    else if (isFields(value)) this.fields(of, value as Fields, path, deep);
    this.choice(of, value, path, deep);
  }

  private text(of: SchemaObject, value: string, path: string): void {
    const length = [...value].length;
    if (typeof of.minLength === "number" && length < of.minLength) this.say(path, of.minLength === 1 ? "empty" : "minLength", { n: of.minLength });
    if (typeof of.maxLength === "number" && length > of.maxLength) this.say(path, "maxLength", { n: of.maxLength, now: length });
    if (typeof of.pattern === "string" && !matches(of.pattern, value)) {
      const number = typesOf(of).types.some((type) => type === "number" || type === "integer");
      this.say(path, number ? "type_number" : "pattern", { pattern: of.pattern });
    }
    const format = typeof of.format === "string" ? FORMATS[of.format] : undefined;
    if (format && !format.test(value)) this.say(path, `format_${of.format === "url" ? "uri" : of.format!.replace("-", "_")}`);
  }

  private number(of: SchemaObject, value: number, path: string): void {
    const above = typeof of.exclusiveMinimum === "number" ? of.exclusiveMinimum : of.exclusiveMinimum === true ? of.minimum : undefined;
    const below = typeof of.exclusiveMaximum === "number" ? of.exclusiveMaximum : of.exclusiveMaximum === true ? of.maximum : undefined;
    if (typeof above === "number" && value <= above) this.say(path, "above", { n: above });
    else if (typeof of.minimum === "number" && value < of.minimum) this.say(path, "minimum", { n: of.minimum });
    if (typeof below === "number" && value >= below) this.say(path, "below", { n: below });
    else if (typeof of.maximum === "number" && value > of.maximum) this.say(path, "maximum", { n: of.maximum });
    if (typeof of.multipleOf === "number" && of.multipleOf > 0) {
      const times = value / of.multipleOf;
      if (Math.abs(times - Math.round(times)) > 1e-9) this.say(path, "multipleOf", { n: of.multipleOf });
    }
  }

  private list(of: SchemaObject, value: Json[], path: string, deep: number): void {
    if (typeof of.minItems === "number" && value.length < of.minItems) this.say(path, "minItems", { n: of.minItems });
    if (typeof of.maxItems === "number" && value.length > of.maxItems) this.say(path, "maxItems", { n: of.maxItems });
    if (of.uniqueItems === true && value.length < 500 && value.some((item, at) => value.findIndex((other) => same(other, item)) !== at)) this.say(path, "uniqueItems");
    const first = Array.isArray(of.prefixItems) ? of.prefixItems : Array.isArray(of.items) ? of.items : [];
    value.forEach((item, at) => {
      if (at < first.length) this.value(first[at], item, pointer(path, at), deep + 1);
      else if (isFields(of.items)) this.value(of.items as SchemaObject, item, pointer(path, at), deep + 1);
    });
  }

  private fields(of: SchemaObject, value: Fields, path: string, deep: number): void {
    for (const name of Array.isArray(of.required) ? of.required : []) if (typeof name === "string" && !Object.hasOwn(value, name)) this.say(pointer(path, name), "required");
    const told = isFields(of.properties) ? of.properties : {};
    const names = Object.keys(value);
    for (const name of names) {
      const inner = own(told, name) as Schema | undefined;
      if (inner !== undefined) this.value(inner, value[name]!, pointer(path, name), deep + 1);
      else if (isFields(of.additionalProperties)) this.value(of.additionalProperties as SchemaObject, value[name]!, pointer(path, name), deep + 1);
      else if (of.additionalProperties === false && !of.patternProperties) this.say(pointer(path, name), "unknown", { name });
    }
    if (typeof of.minProperties === "number" && names.length < of.minProperties) this.say(path, "minProperties", { n: of.minProperties });
    if (typeof of.maxProperties === "number" && names.length > of.maxProperties) this.say(path, "maxProperties", { n: of.maxProperties });
    for (const [name, needed] of Object.entries(isFields(of.dependentRequired) ? of.dependentRequired : {}))
      if (Object.hasOwn(value, name) && Array.isArray(needed)) for (const other of needed) if (!Object.hasOwn(value, String(other))) this.say(pointer(path, String(other)), "required");
  }

  private choices(of: SchemaObject): Schema[] | null {
    return Array.isArray(of.oneOf) ? of.oneOf : Array.isArray(of.anyOf) ? of.anyOf : null;
  }

  private choice(of: SchemaObject, value: Json, path: string, deep: number): void {
    const choices = this.choices(of);
    if (!choices?.length) return;
    this.value(choices[closest(choices, value, this.root, this.steps).at], value, path, deep + 1);
  }
}

function find(schema: Schema, value: Json, root: Schema, steps: { left: number }): Finding[] {
  const check = new Check(root, steps);
  check.value(schema, value, "");
  return check.findings;
}

/** Which of several schemas a value is meant for: the one it fits, else the one with the least to mend. */
export function closest(choices: readonly Schema[], value: Json, root: Schema, steps = { left: MOST_STEPS }): { at: number; findings: number } {
  let best = { at: 0, findings: Infinity };
  choices.slice(0, 50).forEach((choice, at) => {
    if (best.findings === 0) return;
    const found = find(choice, value, root, steps);
    // Another kind of value, or another constant, is further away than any number of missing fields.
    const weight = found.reduce((sum, one) => sum + (one.path === "" && one.code.startsWith("type_") ? 1_000 : one.code === "const" ? 100 : one.code === "unknown" ? 5 : 1), 0);
    if (weight < best.findings) best = { at, findings: weight };
  });
  return best;
}

/** What is wrong with a value that a schema describes. */
export const check = (schema: Schema, value: Json): Finding[] => find(schema, value, schema, { left: MOST_STEPS });
