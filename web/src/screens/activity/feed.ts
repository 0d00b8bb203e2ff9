/**
 * The latest calls, newest first. New ones come by events; while paused, or while somebody reads further down, they
 * wait behind a count and push nothing away.
 */
import { useQuery } from "@tanstack/vue-query";
import { computed, onScopeDispose, shallowRef, watch, type Ref } from "vue";
import { api, take, useLiveEvent } from "@/api";
import type { CallRow, Outcome } from "./outcomes";

export interface Filters {
  server: string | null;
  client: string | null;
  outcome: Outcome | null;
  q: string;
}

const MOST = 500;

export function useFeed(filters: Ref<Filters>, held: Ref<boolean>) {
  const { data, error, refetch } = useQuery({
    queryKey: ["activity", "list"],
    queryFn: () => take(api.GET("/api/activity", { params: { query: { limit: MOST } } })),
    staleTime: 0,
  });
  const calls = shallowRef<CallRow[]>([]);
  const waiting = shallowRef<CallRow[]>([]);

  // At once, too: whoever comes back finds what was asked for the last time.
  watch(
    data,
    (told) => {
      if (!told) return;
      const answered = [...told.calls].reverse();
      // An answer may be older than what was told meanwhile.
      const all = [...[...waiting.value, ...calls.value].filter((call) => call.number > told.last), ...answered];
      const last = held.value ? calls.value[0]?.number : undefined;
      if (last === undefined) [calls.value, waiting.value] = [all.slice(0, MOST), []];
      else waiting.value = all.filter((call) => call.number > last);
    },
    { immediate: true },
  );

  let gathered: CallRow[] = [];
  let timer: ReturnType<typeof setTimeout> | undefined;
  let again: ReturnType<typeof setTimeout> | undefined;
  /** Many a second are drawn four times a second; what was not told of is asked for. */
  useLiveEvent("call", (call) => {
    gathered.push(call);
    if (call.skipped) {
      again ??= setTimeout(() => {
        again = undefined;
        void refetch();
      }, 1000);
    }
    timer ??= setTimeout(() => {
      timer = undefined;
      const known = new Set([...calls.value, ...waiting.value].map((one) => one.number));
      const fresh = gathered.filter((one) => !known.has(one.number)).reverse();
      gathered = [];
      if (held.value) waiting.value = [...fresh, ...waiting.value].slice(0, MOST);
      else calls.value = [...fresh, ...calls.value].slice(0, MOST);
    }, 250);
  });

  onScopeDispose(() => [timer, again].forEach(clearTimeout));

  function catchUp(): void {
    calls.value = [...waiting.value, ...calls.value].slice(0, MOST);
    waiting.value = [];
  }
  watch(held, (now) => {
    if (!now) catchUp();
  });

  const fits = (call: CallRow) => {
    const { server, client, outcome, q } = filters.value;
    const words = q.toLowerCase();
    return (
      (!server || call.server === server) &&
      (!client || call.client === client) &&
      (!outcome || call.outcome === outcome) &&
      (!words || `${call.server}.${call.name} ${call.error ?? ""} ${call.client ?? ""} ${call.principal}`.toLowerCase().includes(words))
    );
  };
  const shown = computed(() => calls.value.filter(fits));
  const fresh = computed(() => waiting.value.filter(fits).length);
  const kept = computed(() => data.value?.kept ?? MOST);
  return { calls, shown, fresh, kept, catchUp, loaded: computed(() => !!data.value), error, refetch };
}
