/**
 * A text as a function: `{name}`, `{'literal'}`, and ` | ` between singular and plural are all that our texts use (the
 * check of the texts holds them to it), and the compiler of vue-i18n, for a first load, is large.
 */
import type { MessageContext } from "vue-i18n";

type Said = (context: MessageContext) => string;
const GAP = /\{(?:'([^']*)'|(\w+))\}/g;

export function compile(text: unknown): Said {
  const cases = String(text).split("|").map(filled);
  return cases.length === 1 ? cases[0]! : (context) => context.plural(cases.map((said) => said(context))) as string;
}

function filled(text: string, _at: number, all: readonly string[]): Said {
  const bare = all.length > 1 ? text.trim() : text;
  return (context) => bare.replace(GAP, (_gap, literal?: string, name?: string) => literal ?? String(context.named(name!) ?? ""));
}
