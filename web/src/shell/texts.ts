/** The language of the page: kept in localStorage, else guessed from the browser. Each language is one chunk. */
import { createI18n } from "vue-i18n";

export const LANGUAGES = ["en", "zh-CN"] as const;
export type Language = (typeof LANGUAGES)[number];
const KEPT_AS = "mcpx.language";

const LOADERS: Record<Language, () => Promise<{ default: object }>> = {
  en: () => import("virtual:messages/en"),
  "zh-CN": () => import("virtual:messages/zh-CN"),
};

function firstLanguage(): Language {
  const kept = localStorage.getItem(KEPT_AS);
  if (LANGUAGES.includes(kept as Language)) return kept as Language;
  return navigator.languages.find((wish) => /^(zh|en)\b/.test(wish))?.startsWith("zh") ? "zh-CN" : "en";
}

export const i18n = createI18n({ legacy: false, locale: "en", fallbackLocale: "en", missingWarn: false, fallbackWarn: false });

const loaded = new Set<Language>();

export async function setLanguage(language: Language, keep = true): Promise<void> {
  if (!loaded.has(language)) {
    i18n.global.setLocaleMessage(language as never, (await LOADERS[language]()).default as never);
    loaded.add(language);
  }
  i18n.global.locale.value = language as never;
  document.documentElement.lang = language;
  if (keep) localStorage.setItem(KEPT_AS, language);
}

export const loadFirstLanguage = (): Promise<void> => setLanguage(firstLanguage(), false);
