/**
 * The ETag of the configuration as last seen, for `If-Match`. A quick action (a switch, a restart) sends the newest
 * one by itself. A form must send the one it was opened with, else it would overwrite what somebody else saved
 * meanwhile: it takes it with `useEdit()` and passes `edit.headers` along.
 */
import { computed, ref } from "vue";

export const configEtag = ref<string | null>(null);

export function useEdit() {
  const held = ref(configEtag.value);
  return {
    /** Goes into a write as `headers: edit.headers.value`. */
    headers: computed((): Record<string, string> => (held.value ? { "If-Match": held.value } : {})),
    /** The configuration changed since the form was opened or renewed. */
    stale: computed(() => held.value !== null && configEtag.value !== held.value),
    /** The form took over the newest state. */
    renew: () => {
      held.value = configEtag.value;
    },
  };
}
