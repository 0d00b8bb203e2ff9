/**
 * What the command palette offers beside routes, servers and tools. A screen adds its own for as long as it is shown:
 * `useActions(() => [{ id: "add", label: t("servers.add"), run: add }])`.
 */
import { computed, onBeforeUnmount, shallowReactive, type Component } from "vue";

export interface Action {
  id: string;
  label: string;
  run: () => void;
  icon?: Component;
  /** A word at the right: "server", "tool", "action". */
  kind?: string;
  /** More words it is found by. */
  also?: string;
}

const sources = shallowReactive(new Set<() => Action[]>());

export function useActions(source: () => Action[]): void {
  sources.add(source);
  onBeforeUnmount(() => sources.delete(source));
}

export const screenActions = computed(() => [...sources].flatMap((source) => source()));
