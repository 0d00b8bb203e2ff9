/** Which clients and servers the flow shows when there is not room for all: the busy ones, then those in trouble. */
import type { components } from "@/api";
import { shownStatus } from "@/parts";

type Client = components["schemas"]["ClientRow"];
type Server = components["schemas"]["ServerRate"];

/** States that need nobody. */
export const RESTING = new Set(["connected", "connecting", "sleeping", "disabled"]);
const MOST_CLIENTS = 5;
const MOST_SERVERS = 10;

export function commonClients(clients: readonly Client[]): { shown: Client[]; more: number } {
  const sorted = [...clients].sort((a, b) => b.calls_per_minute - a.calls_per_minute || a.name.localeCompare(b.name));
  const shown = sorted.slice(0, sorted.length > MOST_CLIENTS ? MOST_CLIENTS - 1 : MOST_CLIENTS);
  return { shown, more: clients.length - shown.length };
}

/** What is called: servers, and the local commands as one more. */
export const targets = (overview: components["schemas"]["Overview"]): Server[] => [...overview.servers, ...(overview.local ? [overview.local] : [])];

const weight = (server: Server) => {
  if (server.calls_per_minute > 0) return 0;
  const status = shownStatus(server);
  if (!RESTING.has(status)) return 1;
  return status === "connected" ? 2 : 3;
};

export function arrangeServers(servers: readonly Server[]) {
  const sorted = [...servers].sort((a, b) => weight(a) - weight(b) || b.calls_per_minute - a.calls_per_minute || a.name.localeCompare(b.name));
  const needed = sorted.filter((server) => weight(server) < 2).length;
  const count = sorted.length <= MOST_SERVERS ? sorted.length : Math.min(MOST_SERVERS - 1, Math.max(needed, 6));
  const rest = sorted.slice(count);
  const ready = rest.filter((server) => shownStatus(server) === "connected").length;
  return { shown: sorted.slice(0, count), more: rest.length, rest: { ready, other: rest.length - ready } };
}

/** How many are in each state that needs somebody. */
export function troubles(servers: readonly Server[]): { status: string; count: number }[] {
  const counts = new Map<string, number>();
  for (const server of servers) {
    const status = shownStatus(server);
    if (!RESTING.has(status)) counts.set(status, (counts.get(status) ?? 0) + 1);
  }
  return ["disconnected", "needs_auth", "degraded", "quarantined"].flatMap((status) => {
    const count = counts.get(status);
    return count ? [{ status, count }] : [];
  });
}
