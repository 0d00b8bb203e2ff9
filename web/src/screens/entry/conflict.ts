/**
 * Two who edit the same entry: the second is told. A change of the configuration that leaves the entry alone is taken
 * over in silence; one that touches it becomes a `conflict`, until the user keeps theirs or takes the new one.
 */
import { ref, shallowRef, watch } from "vue";
import { useEdit } from "@/api";
import { sameEntry, type Entry } from "./entry";

export interface Conflict {
  /** The entry as somebody else left it; null: it was removed. */
  theirs: Entry | null;
}

export function useConflict(opened: Entry, read: () => Promise<Entry | null>) {
  const edit = useEdit();
  const base = shallowRef(opened);
  const conflict = shallowRef<Conflict | null>(null);
  const looking = ref(false);

  async function look(): Promise<void> {
    looking.value = true;
    try {
      const theirs = await read();
      if (theirs && sameEntry(theirs, base.value)) edit.renew();
      else conflict.value = { theirs };
    } finally {
      looking.value = false;
    }
  }

  watch(edit.stale, (stale) => stale && void look(), { immediate: true });

  /** What the user has goes over what somebody else saved. */
  function keepMine(): void {
    if (conflict.value?.theirs) base.value = conflict.value.theirs;
    conflict.value = null;
    edit.renew();
  }

  /** Gives the entry to go on with. */
  function takeTheirs(): Entry | null {
    const theirs = conflict.value?.theirs ?? null;
    if (theirs) base.value = theirs;
    conflict.value = null;
    edit.renew();
    return theirs;
  }

  return { headers: edit.headers, base, conflict, looking, look, keepMine, takeTheirs };
}
