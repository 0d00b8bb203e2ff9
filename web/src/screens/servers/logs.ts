/** The log of a server, followed: what is new is asked for every now and then, while somebody looks. */
import { onScopeDispose, ref, shallowRef, watch, type Ref } from "vue";
import { ApiError, api, take, type components } from "@/api";

export type LogLine = components["schemas"]["LogLine"];
const EVERY = 1_500;
const KEPT = 2_000;
const AT_ONCE = 500;

/** Lines of programs that say of themselves that something is wrong. */
export const saysError = (line: LogLine): boolean => /\b(error|exception|traceback|fatal|panic(ked)?|failed|cannot|denied)\b|Error:|ERR!/i.test(line.text);

export function useLog(name: Ref<string>, following: Ref<boolean>) {
  const lines = shallowRef<LogLine[]>([]);
  const fault = shallowRef<ApiError | null>(null);
  const asked = ref(false);
  let last = 0;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let over = false;

  async function look(): Promise<void> {
    clearTimeout(timer);
    const server = name.value;
    try {
      const told = await take(api.GET("/api/mcp-servers/{name}/logs", { params: { path: { name: server }, query: { after: last, limit: AT_ONCE } } }));
      if (over || server !== name.value) return;
      // A gateway that was started anew counts from the beginning.
      if (told.last < last) lines.value = [];
      if (told.lines.length) lines.value = [...lines.value, ...told.lines].slice(-KEPT);
      last = told.last;
      fault.value = null;
    } catch (thrown) {
      if (over || server !== name.value) return;
      fault.value = ApiError.of(thrown);
    }
    asked.value = true;
    if (following.value && !over) timer = setTimeout(() => void look(), EVERY);
  }

  watch(
    name,
    () => {
      last = 0;
      lines.value = [];
      asked.value = false;
      void look();
    },
    { immediate: true },
  );
  watch(following, (on) => (on ? void look() : clearTimeout(timer)));
  onScopeDispose(() => {
    over = true;
    clearTimeout(timer);
  });
  return { lines, fault, asked, look };
}
