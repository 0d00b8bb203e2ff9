/** Removing an auth config: refused while something refers to it, and then it is said by whom. */
import { useI18n } from "vue-i18n";
import { useRouter } from "vue-router";
import { api, take } from "@/api";
import { confirm, toast, useFaultToast } from "@/parts";
import { useWritten } from "@/screens/entry/written";
import type { AuthRow } from "./kinds";

export function useRemoving() {
  const { t } = useI18n();
  const router = useRouter();
  const tell = useFaultToast();
  const written = useWritten();

  /** `leave` closes what shows it, before it is gone. */
  return async (row: AuthRow, leave?: () => unknown): Promise<void> => {
    const users = row.used_by ?? [];
    if (users.length) {
      const names = users.map((one) => one.slice(one.indexOf(":") + 1)).join(", ");
      const first = users.find((one) => one.startsWith("server:"))?.slice("server:".length);
      toast({
        title: t("auth.inUse", { name: row.name }),
        text: t("auth.inUseBy", { names }),
        hue: "warn",
        action: first ? { label: t("auth.editUser", { name: first }), run: () => void router.push({ name: "servers-edit", params: { server: first } }) } : undefined,
      });
      return;
    }
    const file = row.source?.file.split("/").at(-1) ?? "config.yaml";
    if (!(await confirm({ title: t("auth.remove.title", { name: row.name }), text: t("auth.remove.text", { file }), verb: t("auth.remove.verb"), danger: true }))) return;
    await leave?.();
    try {
      await written(await take(api.DELETE("/api/auth-configs/{name}", { params: { path: { name: row.name } } })), t("auth.removed", { name: row.name }));
    } catch (fault) {
      tell(fault);
    }
  };
}
