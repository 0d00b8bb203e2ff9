/** What `GET /api/events` tells, by the name of the event; the document of the API does not cover streams. */
import type { components } from "./schema";

type Schemas = components["schemas"];

export interface LiveEvents {
  hello: { version: string; run: string; revision: number; etag: string };
  /** What happened meanwhile is not known any more. */
  reset: { reason: string };
  status: { name: string; status: Schemas["ServerRate"]["status"]; since: string; last_error: string | null; tools_count: number; gone: boolean };
  catalog: { server: string | null; kinds: string[]; tools: number };
  /** At most 50 a second are told; `skipped` counts the others. */
  call: Schemas["CallRow"] & { skipped: number };
  config: { ok: boolean; revision: number; etag: string; by: string; summary: string; problems: number };
  approvals: { pending: number };
  clients: { clients: Schemas["ClientRow"][]; sessions: number };
  rates: {
    calls_per_minute: number;
    p95_ms: number | null;
    in_flight: number;
    servers: Schemas["ServerRate"][];
    clients: Schemas["ClientRow"][];
  };
}
export type LiveName = keyof LiveEvents;
