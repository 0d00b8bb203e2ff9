import { useI18n } from "vue-i18n";
import type { Finding } from "./check";

/** What the check found, in the language of the page. */
export function useFindingText(): (finding: Finding) => string {
  const { t } = useI18n();
  return ({ code, params }) => t(`schemaform.check.${code}`, params);
}
