/** What the palette shows for what was typed: actions of the screen, screens, servers, tools; best matches first. */
import { useQuery } from "@tanstack/vue-query";
import { Languages, Moon, Server, Sun, Wrench } from "@lucide/vue";
import { computed, type Component, type Ref } from "vue";
import { useI18n } from "vue-i18n";
import { useRouter } from "vue-router";
import { api, take } from "@/api/client";
import { screenActions } from "./actions";
import { navItems } from "./router";
import { isDark, setTheme } from "./theme";
import { setLanguage } from "./texts";

export interface Choice {
  id: string;
  label: string;
  kind: string;
  run: () => void;
  icon?: Component;
  mono?: boolean;
  also?: string;
}
const SHOWN = 40;

/** Lower is better; null when not every typed word is found. */
function distance(words: string[], choice: Choice): number | null {
  const label = choice.label.toLowerCase();
  const all = `${label} ${choice.kind} ${choice.also ?? ""}`.toLowerCase();
  let sum = 0;
  for (const word of words) {
    if (!all.includes(word)) return null;
    const at = label.indexOf(word);
    sum += at < 0 ? 50 : at === 0 || /[\s._/-]/.test(label[at - 1]!) ? 0 : 10;
  }
  return sum + label.length / 100;
}

export function useChoices(typed: Ref<string>) {
  const { t, locale } = useI18n();
  const router = useRouter();
  const { data: servers } = useQuery({ queryKey: ["servers"], queryFn: () => take(api.GET("/api/mcp-servers")) });
  const { data: tools } = useQuery({ queryKey: ["tools"], queryFn: () => take(api.GET("/api/tools")) });

  const found = computed<Choice[]>(() => [
    ...(servers.value?.servers ?? []).map((server) => ({
      id: `server-${server.name}`,
      label: server.name,
      kind: t("shell.kinds.server"),
      icon: Server,
      run: () => void router.push({ path: "/servers", query: { server: server.name } }),
    })),
    ...(tools.value?.tools ?? []).map((tool) => ({
      id: `tool-${tool.name}`,
      label: tool.name,
      kind: t("shell.kinds.tool"),
      icon: Wrench,
      mono: true,
      also: tool.title ?? "",
      run: () => void router.push({ path: "/tools", query: { tool: tool.name } }),
    })),
  ]);

  const all = computed<Choice[]>(() => [
    ...screenActions.value.map((action) => ({ kind: t("shell.kinds.action"), ...action })),
    ...navItems.map((item) => ({
      id: `go-${item.name}`,
      label: t(item.label),
      kind: t("shell.kinds.screen"),
      icon: item.icon,
      also: item.name,
      run: () => void router.push({ name: item.name }),
    })),
    {
      id: "theme",
      label: t(isDark.value ? "shell.toLight" : "shell.toDark"),
      kind: t("shell.kinds.action"),
      icon: isDark.value ? Sun : Moon,
      also: "theme",
      run: () => setTheme(isDark.value ? "light" : "dark"),
    },
    {
      id: "language",
      label: locale.value === "en" ? "切换到中文" : "Switch to English",
      kind: t("shell.kinds.action"),
      icon: Languages,
      also: "language chinese english zh en",
      run: () => void setLanguage(locale.value === "en" ? "zh-CN" : "en"),
    },
    ...found.value,
  ]);

  return computed(() => {
    const words = typed.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return all.value.slice(0, SHOWN);
    return all.value
      .map((choice) => ({ choice, far: distance(words, choice) }))
      .filter((one): one is { choice: Choice; far: number } => one.far !== null)
      .sort((a, b) => a.far - b.far)
      .slice(0, SHOWN)
      .map((one) => one.choice);
  });
}
