/** How one field of an entry is asked for. */
export type FieldKind = "text" | "code" | "area" | "number" | "flag" | "choice" | "list" | "map" | "secret";

export interface FieldSpec {
  /** `connection.url`: where the value stands in the entry. */
  path: string;
  kind: FieldKind;
  label: string;
  hint?: string;
  /** At the right of the label: "s", "bytes". */
  type?: string;
  required?: boolean;
  /** What counts where nothing is said. */
  fallback?: string;
  placeholder?: string;
  options?: readonly { value: string; label: string }[];
  /** The words of the button that adds a row to a map. */
  add?: string;
  keyHint?: string;
  /** All values of a map are secret, not only those whose names say so. */
  secret?: boolean;
}
