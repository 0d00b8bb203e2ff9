import { onScopeDispose, ref, type Ref } from "vue";

/** Whether the window is narrower than that many pixels. */
export function useNarrow(pixels: number): Ref<boolean> {
  const query = matchMedia(`(max-width: ${pixels - 1}px)`);
  const narrow = ref(query.matches);
  const follow = () => (narrow.value = query.matches);
  query.addEventListener("change", follow);
  onScopeDispose(() => query.removeEventListener("change", follow));
  return narrow;
}
