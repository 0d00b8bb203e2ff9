/** Arguments kept by the user for a tool, in this browser; few and small, the oldest go first. */
import { shallowRef } from "vue";
import type { Fields } from "@/schemaform";

export interface Example {
  name: string;
  arguments: Fields;
}
const KEPT_AS = "mcpx.examples";
const MOST_OF_ONE = 20;
const LARGEST = 20_000;
const LARGEST_OF_ALL = 300_000;

function read(): Record<string, Example[]> {
  try {
    const kept = JSON.parse(localStorage.getItem(KEPT_AS) ?? "{}") as unknown;
    return kept !== null && typeof kept === "object" ? (kept as Record<string, Example[]>) : {};
  } catch {
    return {};
  }
}
const all = shallowRef(read());

export const examplesOf = (tool: string): Example[] => (Object.hasOwn(all.value, tool) ? all.value[tool]! : []);

function write(next: Record<string, Example[]>): boolean {
  while (JSON.stringify(next).length > LARGEST_OF_ALL && Object.keys(next).length > 1) delete next[Object.keys(next)[0]!];
  try {
    localStorage.setItem(KEPT_AS, JSON.stringify(next));
  } catch {
    return false;
  }
  all.value = next;
  return true;
}

/** Whether it was kept: what is too large for this place is not. */
export function keepExample(tool: string, example: Example): boolean {
  if (JSON.stringify(example).length > LARGEST) return false;
  const others = examplesOf(tool).filter((one) => one.name !== example.name);
  const { [tool]: _, ...rest } = all.value;
  return write({ ...rest, [tool]: [...others, example].slice(-MOST_OF_ONE) });
}

export function dropExample(tool: string, name: string): void {
  const { [tool]: mine = [], ...rest } = all.value;
  const left = mine.filter((one) => one.name !== name);
  write(left.length ? { ...rest, [tool]: left } : rest);
}
