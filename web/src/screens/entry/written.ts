/** After a write: says which revision it became, and offers to undo it for as long as nobody wrote after it. */
import { useQueryClient } from "@tanstack/vue-query";
import { useI18n } from "vue-i18n";
import { api, configEtag } from "@/api";
import { toast, useFaultToast } from "@/parts";
import { toasts } from "@/parts/toasts";
import type { Preview, Written } from "./preview";

export function useWritten() {
  const { t } = useI18n();
  const queries = useQueryClient();
  const tell = useFaultToast();

  async function undo(revision: number, etag: string | null): Promise<void> {
    try {
      await api.POST("/api/config/rollback", { body: { revision, message: "" }, headers: etag ? { "If-Match": etag } : {} });
      toast({ title: t("entry.review.undone", { n: revision }) });
      await queries.invalidateQueries();
    } catch (fault) {
      tell(fault);
    }
  }

  return async (answer: Written | Preview | undefined, title?: string): Promise<void> => {
    if (!answer || !("revision" in answer)) return;
    const etag = configEtag.value;
    for (const earlier of toasts) if (earlier.action?.label === t("entry.review.undo")) earlier.action = undefined;
    toast({
      title: title ?? t("entry.review.applied", { n: answer.revision }),
      text: [title ? t("entry.review.applied", { n: answer.revision }) : "", answer.plan.summary, ...(answer.warnings ?? [])].filter(Boolean).join(" · "),
      action: answer.revision > 1 ? { label: t("entry.review.undo"), run: () => void undo(answer.revision - 1, etag) } : undefined,
    });
    await Promise.all(["config", "servers", "auth", "commands", "profiles", "policy", "tools", "overview"].map((root) => queries.invalidateQueries({ queryKey: [root] })));
  };
}
