/**
 * The language of the page: kept in localStorage, else guessed from the browser. Each language comes in two pieces: what
 * the first page needs, and the rest with the first other screen.
 */
import { createI18n } from "vue-i18n";
import { compile } from "./compile";

export const LANGUAGES = ["en", "zh-CN"] as const;
export type Language = (typeof LANGUAGES)[number];
const KEPT_AS = "mcpx.language";

type Piece = "first" | "rest";
type Loader = () => Promise<{ default: object }>;
const LOADERS: Record<Language, Record<Piece, Loader>> = {
  en: { first: () => import("virtual:messages/en/first"), rest: () => import("virtual:messages/en/rest") },
  "zh-CN": { first: () => import("virtual:messages/zh-CN/first"), rest: () => import("virtual:messages/zh-CN/rest") },
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

async function load(wanted: Language): Promise<void> {
  const missing = pieces.map((piece) => LOADERS[wanted][piece]).filter((loader) => !loaded.has(loader));
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
}

export const loadFirstLanguage = (): Promise<void> => show(language);

export function loadAllTexts(): Promise<void> {
  pieces = ["first", "rest"];
  return load(language);
}
