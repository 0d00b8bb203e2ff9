/** Why a server does not work and what to do, in the language of the page; the API says it in English, with a code. */
import { computed, type ComputedRef } from "vue";
import { useI18n } from "vue-i18n";

interface Told {
  cause?: string | null;
  fix?: string | null;
  cause_code?: string | null;
  cause_values?: Record<string, string>;
}

/** What was not said leaves no gap. */
const closed = (words: string) => words.replace(/ ?\(\)|（）/, "").replace(/ +(?=[ .])/, "").replace(/[:：]\s*\.?$/, "").trim();

export function useCauseWords(told: () => Told): ComputedRef<{ cause?: string | null; fix?: string | null }> {
  const { t, te } = useI18n();
  return computed(() => {
    const { cause, fix, cause_code: code, cause_values: values } = told();
    const key = `servers.causes.${code}`;
    if (!code || !te(`${key}.cause`)) return { cause, fix };
    return { cause: closed(t(`${key}.cause`, values ?? {})), fix: t(`${key}.fix`, values ?? {}) };
  });
}
