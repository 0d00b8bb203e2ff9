/**
 * What a change would do, asked while it is being made: `const seen = usePreview(() => [entry.value], ask)`, where `ask`
 * sends the write with `dry_run=true`. Mistakes are told by field.
 */
import { computed, onScopeDispose, ref, shallowRef, watch } from "vue";
import { ApiError, type components } from "@/api";

export type Preview = components["schemas"]["Preview"];
export type Problem = components["schemas"]["Problem"];
export type Written = components["schemas"]["Written"];
type Answer = Preview | Written | undefined;

const AFTER_TYPING = 350;

/** `mcp_servers[3].connection.url` as the form knows it: `connection.url`. */
export const fieldOf = (path: string | null | undefined): string => (path ?? "").replace(/^(mcp_servers|auth_configs|commands)\[\d+\]\.?/, "");

export function usePreview(source: () => unknown, ask: () => Promise<Answer>, wanted: () => boolean = () => true) {
  const preview = shallowRef<Preview | null>(null);
  const fault = shallowRef<ApiError | null>(null);
  const checking = ref(false);
  let timer: ReturnType<typeof setTimeout> | undefined;
  let round = 0;

  async function look(): Promise<void> {
    const mine = ++round;
    checking.value = true;
    try {
      const answer = await ask();
      if (mine !== round) return;
      preview.value = answer && "ok" in answer ? answer : null;
      fault.value = null;
    } catch (thrown) {
      if (mine !== round) return;
      preview.value = null;
      fault.value = ApiError.of(thrown);
    } finally {
      if (mine === round) checking.value = false;
    }
  }

  function later(): void {
    clearTimeout(timer);
    round++;
    if (!wanted()) {
      preview.value = null;
      fault.value = null;
      checking.value = false;
      return;
    }
    checking.value = true;
    timer = setTimeout(() => void look(), AFTER_TYPING);
  }

  watch(source, later, { immediate: true });
  onScopeDispose(() => {
    clearTimeout(timer);
    round++;
  });

  const problems = computed<Problem[]>(() => {
    if (preview.value) return preview.value.problems ?? [];
    const told = fault.value;
    if (!told || told.status !== 422) return [];
    if (told.errors.length) return told.errors.map((one) => ({ message: one.message, path: one.path, severity: "error" }));
    return [{ message: told.message, path: told.path, hint: told.hint, severity: "error" }];
  });
  const byField = computed<Record<string, string>>(() => {
    const found: Record<string, string> = {};
    for (const one of problems.value) {
      const field = fieldOf(one.path);
      if (field && one.severity !== "warning") found[field] ??= one.hint ? `${one.message} (${one.hint})` : one.message;
    }
    return found;
  });

  return { preview, fault, checking, problems, byField, look: () => (clearTimeout(timer), look()) };
}

/** The mistake of a field, or of something inside it. */
export function mistakeAt(byField: Record<string, string>, field: string): string | undefined {
  if (byField[field]) return byField[field];
  const inside = Object.keys(byField).find((one) => one.startsWith(`${field}.`) || one.startsWith(`${field}[`));
  return inside && byField[inside];
}
