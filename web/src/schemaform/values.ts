/** Values of a form: never changed in place, `undefined` is "not sent". */
import { isFields, own, type Fields, type Json } from "./schema";

/** A copy with one field set, or without it. */
export function withField(fields: Fields | undefined, key: string, value: Json | undefined): Fields {
  const copy: Fields = Object.fromEntries(Object.entries(fields ?? {}).filter(([name]) => value !== undefined || name !== key));
  if (value !== undefined) Object.defineProperty(copy, key, { value, enumerable: true, configurable: true, writable: true });
  return copy;
}

export const withItem = (items: readonly Json[], at: number, value: Json | undefined): Json[] =>
  value === undefined ? items.filter((_, nth) => nth !== at) : items.map((item, nth) => (nth === at ? value : item));

export function same(a: Json | undefined, b: Json | undefined): boolean {
  if (a === b) return true;
  if (Array.isArray(a) && Array.isArray(b)) return a.length === b.length && a.every((item, at) => same(item, b[at]));
  if (isFields(a) && isFields(b)) {
    const names = Object.keys(a);
    return names.length === Object.keys(b).length && names.every((name) => Object.hasOwn(b, name) && same(own(a as Fields, name), own(b as Fields, name)));
  }
  return false;
}

export const pointer = (path: string, key: string | number): string => `${path}/${String(key).replaceAll("~", "~0").replaceAll("/", "~1")}`;

/** One line of it, for placeholders, options and folded parts. */
export function brief(value: Json | undefined, most = 60): string {
  if (value === undefined) return "";
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

/**
 * The number that a text stands for. What is no number, or would not come back the same (too many digits), stays text:
 * the check then says so, and nothing typed is lost.
 */
export function numberOr(text: string): Json | undefined {
  const plain = text.trim();
  if (plain === "") return undefined;
  if (!/^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/.test(plain)) return text;
  const value = Number(plain);
  if (!Number.isFinite(value) || (/^[+-]?\d+$/.test(plain) && !Number.isSafeInteger(value))) return text;
  return value;
}
