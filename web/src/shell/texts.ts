/**
 * The language of the page: kept in localStorage, else guessed from the browser. Each language comes in pieces: what the
 * first page needs, the rest with the first other screen, and the gateway's own sentences, which are English as they come.
 */
import { createI18n } from "vue-i18n";
import { queryClient } from "@/api/queries";
import { speakWith } from "@/api/said";
import { compile } from "./compile";

export const LANGUAGES = ["en", "zh-CN"] as const;
export type Language = (typeof LANGUAGES)[number];
const KEPT_AS = "mcpx.language";

type Piece = "first" | "rest" | "said";
type Loader = () => Promise<{ default: object }>;
const LOADERS: Record<Language, Record<Piece, Loader>> = {
  en: { first: () => import("virtual:messages/en/first"), rest: () => import("virtual:messages/en/rest"), said: () => Promise.resolve({ default: {} }) },
  "zh-CN": { first: () => import("virtual:messages/zh-CN/first"), rest: () => import("virtual:messages/zh-CN/rest"), said: () => import("virtual:messages/zh-CN/said") },
};

function firstLanguage(): Language {
  const kept = localStorage.getItem(KEPT_AS);
  if (LANGUAGES.includes(kept as Language)) return kept as Language;
  return navigator.languages.find((wish) => /^(zh|en)\b/.test(wish))?.startsWith("zh") ? "zh-CN" : "en";
}

export const i18n = createI18n({ legacy: false, locale: "en", fallbackLocale: "en", missingWarn: false, fallbackWarn: false, messageCompiler: compile });

let language = firstLanguage();
let pieces: readonly Piece[] = ["first"];
const loaded = new Set<Loader>();

async function load(wanted: Language, wants: readonly Piece[] = pieces): Promise<void> {
  const missing = wants.map((piece) => LOADERS[wanted][piece]).filter((loader) => !loaded.has(loader));
  await Promise.all(
    missing.map(async (loader) => {
      i18n.global.mergeLocaleMessage(wanted as never, (await loader()).default as never);
      loaded.add(loader);
    }),
  );
}

async function show(wanted: Language): Promise<void> {
  language = wanted;
  await load(wanted);
  i18n.global.locale.value = wanted as never;
  document.documentElement.lang = wanted;
}

export async function setLanguage(wanted: Language): Promise<void> {
  await show(wanted);
  localStorage.setItem(KEPT_AS, wanted);
  await queryClient.invalidateQueries(); // sentences of the gateway are put into words as they come
}

export const loadFirstLanguage = (): Promise<void> => show(language);

export function loadAllTexts(): Promise<void> {
  pieces = ["first", "rest"];
  return load(language);
}

speakWith({
  ready: () => load(language, ["said"]),
  say: (code, values) => (i18n.global.te(`said.${code}`) ? i18n.global.t(`said.${code}`, values) : null),
});
