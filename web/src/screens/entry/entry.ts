/** An entry of the configuration as the forms hold it: plain JSON in the native shape, never changed in place. */
export type Entry = Record<string, unknown>;

/** Begins each mask of a secret in answers. Eight digits that name the secret follow. If a mask is sent back, the stored secret stays. */
export const MASK = "••••••••";
export const isMask = (value: unknown): boolean => typeof value === "string" && /^•{8}(?:[0-9a-f]{8})?$/.test(value);

export const isMasked = (value: unknown): value is string => typeof value === "string" && value.includes(MASK);
/** `${VAR}`: looked up when the configuration is read, and no secret itself. */
export const isReference = (value: unknown): boolean => typeof value === "string" && /\$\{[^}]*\}/.test(value);
export const looksSecret = (key: string): boolean => /key|token|secret|passw|authorization|credential|cookie|\bpat\b/i.test(key);

export const asEntry = (value: unknown): Entry => (typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Entry) : {});

/** The value at `connection.url`, say. */
export function valueAt(entry: Entry, path: string): unknown {
  return path.split(".").reduce<unknown>((inside, key) => asEntry(inside)[key], entry);
}

/** A copy with another value there; `undefined` takes the key out, and with its last key a section. */
export function withValue(entry: Entry, path: string, value: unknown): Entry {
  const [key, ...rest] = path.split(".") as [string, ...string[]];
  let inside = value;
  if (rest.length) {
    inside = withValue(asEntry(entry[key]), rest.join("."), value);
    if (value === undefined && !Object.keys(inside as Entry).length) inside = undefined;
  }
  if (inside !== undefined) return { ...entry, [key]: inside };
  const { [key]: _gone, ...others } = entry;
  return others;
}

export const sameEntry = (one: unknown, other: unknown): boolean => JSON.stringify(sorted(one)) === JSON.stringify(sorted(other));

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, inside]) => [key, sorted(inside)]),
  );
}

/** For showing: what looks like a secret and was typed in clear is hidden. */
export function hidden(value: unknown, key = ""): unknown {
  if (typeof value === "string") return looksSecret(key) && value && !isReference(value) ? MASK : value;
  if (Array.isArray(value)) return value.map((one) => hidden(one));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, inside]) => [name, hidden(inside, name)]));
}
