/** An entry as YAML and back; the library is loaded when somebody looks at YAML. */
import type { Fields } from "@/schemaform";

export async function writeYaml(value: Fields): Promise<string> {
  const { stringify } = await import("yaml");
  return stringify(value, { lineWidth: 110, aliasDuplicateObjects: false });
}

export async function readYaml(text: string): Promise<{ value: Fields; fault: null } | { value: null; fault: string }> {
  const { parseDocument } = await import("yaml");
  const document = parseDocument(text, { schema: "core", prettyErrors: true });
  const first = document.errors[0];
  if (first) return { value: null, fault: first.message.split("\n")[0]! };
  try {
    let value: unknown = document.toJS({ maxAliasCount: 100 });
    // As it stands in the file, an entry is an element of a list.
    if (Array.isArray(value) && value.length === 1) value = value[0] as unknown;
    if (value === null || typeof value !== "object" || Array.isArray(value)) return { value: null, fault: "name: …" };
    return { value: JSON.parse(JSON.stringify(value)) as Fields, fault: null };
  } catch (error) {
    return { value: null, fault: error instanceof Error ? error.message : String(error) };
  }
}
