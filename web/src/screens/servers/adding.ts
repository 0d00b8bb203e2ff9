/** The servers that are about to be added: recognised in a paste or begun by hand, each edited on its own. */
import { computed, onScopeDispose, ref, shallowRef, watch } from "vue";
import { api, ApiError, take, type components } from "@/api";
import { asEntry, type Entry } from "@/screens/entry/entry";
import { withTransport, type Transport } from "./form-fields";

export interface Draft {
  id: number;
  entry: Entry;
  /** As it was recognised or begun. */
  begun: Entry;
  /** The name it came with, where an entry of that name is there already and it was given another. */
  renamed: string | null;
  picked: boolean;
}
export type PasteResult = components["schemas"]["PasteResult"];

const AFTER_TYPING = 300;

/** As people write it: the name and how it is reached first. */
function orderly(entry: Entry): Entry {
  const { name, description, connection, ...rest } = entry;
  const { type, command, args, ...more } = asEntry(connection);
  const begins = Object.entries({ type, command, args }).filter(([, value]) => value !== undefined);
  return { name, ...(description ? { description } : {}), connection: { ...Object.fromEntries(begins), ...more }, ...rest };
}
let count = 0;

export function usePaste() {
  const text = ref("");
  const result = shallowRef<PasteResult | null>(null);
  const fault = shallowRef<ApiError | null>(null);
  const looking = ref(false);
  const drafts = ref<Draft[]>([]);
  let timer: ReturnType<typeof setTimeout> | undefined;
  let round = 0;

  async function look(): Promise<void> {
    const mine = ++round;
    try {
      const told = await take(api.POST("/api/paste", { body: { text: text.value } }));
      if (mine !== round) return;
      result.value = told;
      fault.value = null;
      drafts.value = (told.entries ?? [])
        .filter((one) => one.section === "mcp_servers")
        .map((one) => {
          const own = one.taken && one.free_name ? { ...one.entry, name: one.free_name } : one.entry;
          const begun = orderly(own);
          return { id: ++count, entry: begun, begun, renamed: own === one.entry ? null : String(one.entry.name), picked: true };
        });
    } catch (thrown) {
      if (mine !== round) return;
      result.value = null;
      fault.value = ApiError.of(thrown);
      drafts.value = [];
    }
    looking.value = false;
  }

  watch(text, (now) => {
    clearTimeout(timer);
    round++;
    if (!now.trim()) {
      looking.value = false;
      result.value = null;
      fault.value = null;
      drafts.value = [];
      return;
    }
    looking.value = true;
    timer = setTimeout(() => void look(), AFTER_TYPING);
  });
  onScopeDispose(() => {
    clearTimeout(timer);
    round++;
  });

  function begin(transport: Transport): void {
    const begun = withTransport({ name: "" }, transport);
    drafts.value = [...drafts.value, { id: ++count, entry: begun, begun, renamed: null, picked: true }];
  }

  const others = computed(() => (result.value?.entries ?? []).filter((one) => one.section !== "mcp_servers"));
  return { text, result, fault, looking, drafts, begin, others };
}
