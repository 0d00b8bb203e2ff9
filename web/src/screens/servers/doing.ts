/** What can be done to a server, with its words; used by the rows, the drawer and the keys. */
import { useQueryClient } from "@tanstack/vue-query";
import { reactive, shallowRef } from "vue";
import { useI18n } from "vue-i18n";
import { api, take } from "@/api";
import { confirm, copyText, toast, useFaultToast } from "@/parts";
import { withValue, type Entry } from "@/screens/entry/entry";
import { useWritten } from "@/screens/entry/written";
import { isOn, safeUrl, shellCommand, type ServerRow } from "./rows";

/** The sign-in that is under way, shown by `SignInDialog`. */
export const signingIn = shallowRef<{ name: string; url: string | null; problem: string | null } | null>(null);
const busy = reactive(new Set<string>());

export function useDoing() {
  const { t } = useI18n();
  const queries = useQueryClient();
  const tell = useFaultToast();
  const written = useWritten();
  const outdated = () => queries.invalidateQueries({ queryKey: ["servers"] });

  async function once<T>(name: string, act: () => Promise<T>): Promise<T | undefined> {
    if (busy.has(name)) return undefined;
    busy.add(name);
    try {
      return await act();
    } catch (fault) {
      tell(fault);
      return undefined;
    } finally {
      busy.delete(name);
      void outdated();
    }
  }

  const restart = (row: ServerRow) =>
    once(row.name, async () => {
      await api.POST("/api/mcp-servers/{name}/reconnect", { params: { path: { name: row.name } } });
      toast({ title: t(row.transport === "stdio" ? "servers.did.restarting" : "servers.did.reconnecting", { name: row.name }), hue: "busy" });
    });

  const toggle = (row: ServerRow, enabled = !isOn(row)) =>
    once(row.name, async () => {
      const answer = await take(api.PATCH("/api/mcp-servers/{name}/toggle", { params: { path: { name: row.name } }, body: { enabled } }));
      await written(answer, t(enabled ? "servers.did.enabled" : "servers.did.disabled", { name: row.name }));
    });

  /** `leave` closes what shows it, before it is gone. */
  async function remove(row: ServerRow, leave?: () => unknown): Promise<void> {
    const file = row.source?.file.split("/").at(-1) ?? "config.yaml";
    const text = t("servers.remove.text", { n: row.tools_count, file }, row.tools_count);
    if (!(await confirm({ title: t("servers.remove.title", { name: row.name }), text, verb: t("servers.remove.verb"), danger: true }))) return;
    await leave?.();
    await once(row.name, async () => {
      await written(await take(api.DELETE("/api/mcp-servers/{name}", { params: { path: { name: row.name } } })), t("servers.did.removed", { name: row.name }));
    });
  }

  const signIn = (row: ServerRow) =>
    once(row.name, async () => {
      const told = await take(api.POST("/api/mcp-servers/{name}/sign-in", { params: { path: { name: row.name } } }));
      if (told.state === "signed_in" || told.state === "not_needed") toast({ title: t("servers.did.signedIn", { name: row.name }) });
      else signingIn.value = { name: row.name, url: safeUrl(told.auth_url), problem: told.problem ?? null };
    });

  async function signOut(row: ServerRow): Promise<void> {
    const question = { title: t("servers.signOut.title", { name: row.name }), text: t("servers.signOut.text"), verb: t("servers.signOut.verb") };
    if (!(await confirm(question))) return;
    await once(row.name, async () => {
      await api.DELETE("/api/mcp-servers/{name}/sign-in", { params: { path: { name: row.name } } });
      toast({ title: t("servers.did.signedOut", { name: row.name }) });
    });
  }

  /** Writes the fields that would mend it. */
  const repair = (name: string, entry: Entry, fields: Record<string, unknown>) =>
    once(name, async () => {
      const mended = Object.entries(fields).reduce((made, [path, value]) => withValue(made, path, value ?? undefined), entry);
      const answer = await take(api.PUT("/api/mcp-servers/{name}", { params: { path: { name }, query: { message: t("servers.did.repairMessage", { name }) } }, body: mended }));
      await written(answer, t("servers.did.repaired", { name }));
    });

  async function copyForTerminal(row: ServerRow): Promise<void> {
    const command = shellCommand(row);
    if (await copyText(command)) toast({ title: t("servers.did.copied"), text: command });
  }

  const isBusy = (name: string) => busy.has(name);
  return { restart, toggle, remove, signIn, signOut, repair, copyForTerminal, isBusy };
}
