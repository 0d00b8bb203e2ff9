/** Light, dark or as the system has it; kept in localStorage. */
import { ref, watchEffect } from "vue";

export const THEMES = ["system", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];
const KEPT_AS = "mcpx.theme";

const kept = localStorage.getItem(KEPT_AS) as Theme | null;
export const theme = ref<Theme>(kept && THEMES.includes(kept) ? kept : "system");
export const isDark = ref(false);

export function setTheme(wish: Theme): void {
  theme.value = wish;
  localStorage.setItem(KEPT_AS, wish);
}

export function followTheme(): void {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    isDark.value = theme.value === "dark" || (theme.value === "system" && system.matches);
    document.documentElement.dataset.theme = isDark.value ? "dark" : "light";
  };
  system.addEventListener("change", apply);
  watchEffect(apply);
}
