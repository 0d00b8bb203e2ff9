/** How a part of a schema is shown: which control, with what to choose from. */
import { isFields, resolved, together, typesOf, type Fields, type Json, type Schema, type SchemaObject } from "./schema";
import { same } from "./values";

export type Kind =
  | "text"
  | "lines"
  | "date"
  | "moment"
  | "number"
  | "boolean"
  | "options"
  | "fixed"
  | "chips"
  | "picks"
  | "rows"
  | "object"
  | "map"
  | "variants"
  | "null"
  | "json";

export interface Option {
  value: Json;
  label: string;
}

export interface Shape {
  kind: Kind;
  /** With references followed; what is common to all variants is in each of them. */
  schema: SchemaObject;
  nullable: boolean;
  options: Option[];
  variants: SchemaObject[];
}

const LONG_NAMES = /(^|_)(text|content|contents|body|prompt|sql|query_text|code|script|markdown|html|message|document|thought|old_?text|new_?text)$/i;
/** A text this long is not written in one line. */
const LONG = 300;
/** So deep one looks into lists of lists and choices of one: a schema may refer to itself. */
const DEEPEST = 8;
const DEEPEST_WORD = 2;
/** A browser's list takes seconds for more than this: such a value is typed. */
const MOST_OPTIONS = 1_000;
const SAYS_NOTHING_TO_SHOW = new Set(["required", "title", "description", "not", "dependentRequired", "minProperties", "maxProperties"]);

const shape = (kind: Kind, schema: SchemaObject, nullable: boolean, more: Partial<Shape> = {}): Shape => ({
  kind,
  schema,
  nullable,
  options: [],
  variants: [],
  ...more,
});

const wordOf = (value: Json): string => (typeof value === "string" ? value : JSON.stringify(value));
const titleOf = (schema: SchemaObject): string | undefined => (typeof schema.title === "string" ? schema.title : undefined);
const isNull = (schema: SchemaObject) => schema.type === "null" || schema.const === null || (Array.isArray(schema.enum) && schema.enum.length === 1 && schema.enum[0] === null);

function ofText(schema: SchemaObject, name: string): Kind {
  if (schema.format === "date") return "date";
  if (schema.format === "date-time") return "moment";
  const long =
    ["textarea", "multiline", "markdown"].includes(schema.format ?? "") ||
    typeof schema.contentMediaType === "string" ||
    (schema.maxLength ?? 0) > LONG ||
    (schema.format === undefined && schema.pattern === undefined && LONG_NAMES.test(name));
  return long ? "lines" : "text";
}

/** A choice of plain values. */
function ofOptions(schema: SchemaObject, nullable: boolean, values: readonly Json[], label: (value: Json, at: number) => string): Shape {
  const options = values.slice(0, MOST_OPTIONS).map((value, at) => ({ value, label: label(value, at) }));
  if (values.length <= MOST_OPTIONS) return shape("options", schema, nullable, { options });
  return shape(values.every((value) => typeof value === "string") ? "text" : "json", schema, nullable, { options });
}

function ofList(schema: SchemaObject, nullable: boolean, root: Schema, deep: number): Shape {
  if (schema.prefixItems || Array.isArray(schema.items)) return shape("json", schema, nullable);
  if (schema.items === undefined || typeof schema.items === "boolean") return shape("json", schema, nullable);
  const item = shapeOf(schema.items, root, "", deep + 1);
  if (item.nullable) return shape("rows", schema, nullable);
  if (item.kind === "options" && item.options.length <= 12) return shape("picks", schema, nullable, { options: item.options });
  if (item.kind === "text" && item.schema.const === undefined) return shape("chips", schema, nullable);
  return shape("rows", schema, nullable);
}

function ofFields(schema: SchemaObject, nullable: boolean): Shape {
  if (isFields(schema.properties) && Object.keys(schema.properties).length > 0) return shape("object", schema, nullable);
  if (isFields(schema.additionalProperties) && Object.keys(schema.additionalProperties).length > 0) return shape("map", schema, nullable);
  return shape(schema.additionalProperties === false ? "object" : "json", schema, nullable);
}

/** One of several schemas: a plain choice where each is one value, else variants to choose between. */
function ofChoice(base: SchemaObject, choices: readonly Schema[], nullable: boolean, root: Schema, name: string, deep: number): Shape | null {
  const all = choices.map((choice) => resolved(choice, root));
  const real = all.filter((choice) => !isNull(choice));
  const orNull = nullable || real.length < all.length;
  if (real.length && real.every((choice) => Object.keys(choice).every((key) => SAYS_NOTHING_TO_SHOW.has(key)))) return null;
  if (real.length === 1) {
    const only = shapeOf(together(real[0]!, base), root, name, deep + 1);
    return { ...only, nullable: orNull || only.nullable };
  }
  if (real.length && real.every((choice) => choice.const !== undefined))
    return ofOptions(base, orNull, real.map((choice) => choice.const!), (value, at) => titleOf(real[at]!) ?? wordOf(value));
  if (!real.length) return shape(orNull ? "null" : "json", base, orNull);
  return shape("variants", base, orNull, { variants: real.map((choice) => together(base, choice)) });
}

/** A number or a truth value that may also be a text of a certain form (`${VAR}`): one control, which keeps text as it is. */
function orReference(schema: SchemaObject, types: readonly string[]): Kind | null {
  if (types.length !== 2 || !types.includes("string") || typeof schema.pattern !== "string") return null;
  if (types.includes("integer") || types.includes("number")) return "number";
  return types.includes("boolean") ? "boolean" : null;
}

export function shapeOf(given: Schema | undefined, root: Schema, name = "", deep = 0): Shape {
  const schema = resolved(given, root);
  if (deep > DEEPEST) return shape("json", schema, false);
  const { types, nullable } = typesOf(schema);
  if (schema.const !== undefined) return shape(schema.const === null ? "null" : "fixed", schema, false);
  if (Array.isArray(schema.enum)) {
    const values = schema.enum.filter((value) => value !== null);
    if (values.length) return ofOptions(schema, nullable || values.length < schema.enum.length, values, wordOf);
    return shape(schema.enum.length ? "null" : "json", schema, false);
  }
  const choices = Array.isArray(schema.oneOf) ? schema.oneOf : Array.isArray(schema.anyOf) ? schema.anyOf : null;
  if (choices) {
    const base = { ...schema };
    delete base.oneOf;
    delete base.anyOf;
    const chosen = ofChoice(base, choices, nullable, root, name, deep);
    if (chosen) return chosen;
  }
  const plain = orReference(schema, types);
  if (plain) return shape(plain, schema, nullable);
  if (types.length > 1) return shape("variants", schema, nullable, { variants: types.map((type) => ({ ...schema, type, nullable: false, title: type })) });
  switch (types[0] ?? (schema.properties ? "object" : schema.items ? "array" : nullable ? "null" : undefined)) {
    case "string":
      return shape(ofText(schema, name), schema, nullable);
    case "integer":
    case "number":
      return shape("number", schema, nullable);
    case "boolean":
      return shape("boolean", schema, nullable);
    case "array":
      return ofList(schema, nullable, root, deep);
    case "object":
      return ofFields(schema, nullable);
    case "null":
      return shape("null", schema, false);
    default:
      return shape("json", schema, nullable);
  }
}

/** Whether the control can show this value as it is. What it cannot is shown as JSON, so that nothing is lost. */
export function fits(value: Json | undefined, { kind, options, schema }: Shape): boolean {
  if (value === undefined) return true;
  switch (kind) {
    case "text":
      return typeof value === "string" && !value.includes("\n");
    case "lines":
    case "date":
    case "moment":
      return typeof value === "string";
    case "number":
      return typeof value === "number" || typeof value === "string";
    case "boolean":
      return typeof value === "boolean";
    case "options":
      return options.some((option) => same(option.value, value));
    case "fixed":
      return same(schema.const, value);
    case "chips":
      return Array.isArray(value) && value.every((item) => typeof item === "string");
    case "picks":
      return Array.isArray(value) && value.every((item, at) => options.some((option) => same(option.value, item)) && value.findIndex((other) => same(other, item)) === at);
    case "rows":
      return Array.isArray(value);
    case "object":
    case "map":
      return isFields(value);
    case "null":
      return value === null;
    default:
      return true;
  }
}

/** A short word for what is expected: "string", "1–100", "string[]", "enum". */
export function typeWord(of: Shape, root: Schema, deep = 0): string {
  const { schema, kind } = of;
  if (deep > DEEPEST_WORD) return "any";
  const word = ((): string => {
    switch (kind) {
      case "options":
        return "enum";
      case "fixed":
        return "const";
      case "number": {
        const whole = typesOf(schema).types[0] ?? "number";
        const { minimum: least, maximum: most } = schema;
        if (typeof least === "number" && typeof most === "number") return `${least}–${most}`;
        if (typeof least === "number") return `${whole} ≥ ${least}`;
        if (typeof most === "number") return `${whole} ≤ ${most}`;
        return whole;
      }
      case "chips":
      case "picks":
      case "rows": {
        const inner = shapeOf(schema.items as Schema, root);
        return inner.kind === "variants" ? "array" : `${typeWord(inner, root, deep + 1)}[]`;
      }
      case "map":
        return `map<${typeWord(shapeOf(schema.additionalProperties, root), root, deep + 1)}>`;
      case "variants":
        return of.variants.length > 3 ? "one of" : [...new Set(of.variants.map((variant) => typesOf(variant).types[0] ?? "any"))].join(" | ");
      case "json":
        return typesOf(schema).types[0] ?? "any";
      case "text":
      case "lines":
        return schema.format && ["email", "uri", "url", "uuid"].includes(schema.format) ? schema.format : "string";
      case "moment":
        return "date-time";
      default:
        return kind;
    }
  })();
  return of.nullable ? `${word} | null` : word;
}

/** What a new part begins with: its default, else nothing more than its kind. */
export function fresh(of: Shape): Json {
  if (of.schema.default !== undefined) return of.schema.default;
  switch (of.kind) {
    case "options":
      return of.options[0]?.value ?? null;
    case "fixed":
      return of.schema.const ?? null;
    case "boolean":
      return false;
    case "number":
      return typeof of.schema.minimum === "number" ? of.schema.minimum : 0;
    case "chips":
    case "picks":
    case "rows":
      return [];
    case "object":
    case "map":
      return {} as Fields;
    case "variants":
      return {} as Fields;
    case "null":
      return null;
    case "json":
      return typesOf(of.schema).types[0] === "array" ? [] : {};
    default:
      return "";
  }
}
