/**
 * One stream of events for the whole page. It tells vue-query what is out of date and hands events to who listens. A
 * lost stream is resumed after the last received event (Last-Event-ID), with growing pauses between the attempts.
 * After a reconnect, all data is fetched again. The stream is read with `fetch`, because `EventSource` cannot send the
 * header of the session.
 */
import type { QueryClient } from "@tanstack/vue-query";
import { computed, onScopeDispose, reactive } from "vue";
import { send } from "./client";
import { configEtag } from "./etag";
import type { LiveEvents, LiveName } from "./events";
import { frames, type Frame } from "./frames";
import { inOwnWords } from "./said";
import type { components } from "./schema";
import { signedOut } from "./session";

export type { LiveEvents } from "./events";
type Overview = components["schemas"]["Overview"];

/**
 * The first element of the query keys that an event makes out of date. What comes often (`call`, `rates`, `clients`) is
 * not in it: screens listen to those.
 */
const OUTDATES: Partial<Record<LiveName, readonly string[]>> = {
  hello: ["servers", "tools", "overview", "approvals", "activity"], // nobody told of what happened before
  status: ["servers", "overview"],
  catalog: ["tools", "servers", "overview", "savings"],
  config: ["config", "servers", "commands", "auth", "profiles", "policy", "tokens", "tools", "overview"],
  approvals: ["approvals", "overview", "servers"],
};

/** Rates of those that are called now; the others are idle. */
function rated<Row extends { calls_per_minute?: number }>(known: Row[], told: Row[], key: (row: Row) => string): Row[] {
  const rates = new Map(told.map((row) => [key(row), row]));
  return known.map((row) => rates.get(key(row)) ?? { ...row, calls_per_minute: 0 });
}

/** What comes often goes straight into what is shown. */
function patch(name: LiveName, data: LiveEvents[LiveName]): void {
  if (name !== "rates" && name !== "clients") return;
  queries?.setQueryData<Overview>(["overview"], (known) => {
    if (!known) return known;
    if (name === "clients") {
      const { clients, sessions } = data as LiveEvents["clients"];
      return { ...known, clients, sessions };
    }
    const { clients, servers, local, ...rates } = data as LiveEvents["rates"];
    return {
      ...known,
      gateway: { ...known.gateway, ...rates },
      clients: rated(known.clients, clients, (client) => `${client.name} ${client.principal} ${client.profile}`),
      servers: rated(known.servers, servers, (server) => server.name),
      local,
    };
  });
}

const NAMES: readonly string[] = ["hello", "reset", "status", "catalog", "call", "config", "approvals", "clients", "rates"];
/** Many events in a row (200 servers that start) cause one round of requests in this time. */
const GATHER = 300;
const FIRST_PAUSE = 1_000;
const LONGEST_PAUSE = 15_000;

interface Live {
  state: "live" | "reconnecting" | "off";
  /** When the gateway was last heard, in ms since the epoch. */
  heard: number | null;
  nextTry: number | null;
}

const live = reactive<Live>({ state: "off", heard: null, nextTry: null });
const listeners = new Map<LiveName, Set<(data: never) => void>>();
let stream: AbortController | null = null;
/** The id of the last received event. */
let lastId: string | null = null;
let pause = FIRST_PAUSE;
let timer: ReturnType<typeof setTimeout> | undefined;
let queries: QueryClient | null = null;
const outdated = new Set<string>();
/** Of several replicas the one that the pages show. */
let replica: string | null = null;

function outdate(roots: readonly string[]): void {
  if (!outdated.size && roots.length) {
    setTimeout(() => {
      for (const root of outdated) void queries?.invalidateQueries({ queryKey: [root] });
      outdated.clear();
    }, GATHER);
  }
  for (const root of roots) outdated.add(root);
}

function told(frame: Frame): void {
  live.heard = Date.now();
  lastId = frame.id ?? lastId;
  if (!NAMES.includes(frame.event)) return;
  const name = frame.event as LiveName;
  const data = inOwnWords(JSON.parse(frame.data) as LiveEvents[LiveName]);
  if (name === "hello") replica = (data as LiveEvents["hello"]).replica ?? null;
  const where = (data as { replica?: string | null }).replica ?? replica;
  if (where !== replica) return; // it happened at another one, which has its own pages
  if (name === "hello" || name === "config") configEtag.value = (data as LiveEvents["hello"]).etag;
  if (name === "reset") void queries?.invalidateQueries();
  patch(name, data);
  outdate(OUTDATES[name] ?? []);
  for (const listener of listeners.get(name) ?? []) listener(data as never);
}

function opened(): void {
  const wasLost = live.state === "reconnecting";
  live.state = "live";
  live.heard = Date.now();
  live.nextTry = null;
  pause = FIRST_PAUSE;
  if (wasLost) void queries?.invalidateQueries();
}

function lost(): void {
  live.state = "reconnecting";
  if (signedOut.value) return;
  live.nextTry = Date.now() + pause;
  timer = setTimeout(open, pause);
  pause = Math.min(pause * 2, LONGEST_PAUSE);
}

async function listen(signal: AbortSignal): Promise<void> {
  const resume: Record<string, string> = lastId === null ? {} : { "Last-Event-ID": lastId };
  const response = await send("/api/events", { headers: { Accept: "text/event-stream", ...resume }, cache: "no-store", signal });
  opened();
  if (response.body) for await (const frame of frames(response.body)) told(frame);
}

function open(): void {
  clearTimeout(timer);
  stream?.abort();
  const current = new AbortController();
  stream = current;
  void listen(current.signal)
    .catch(() => {}) // The next step opens the stream again.
    .then(() => stream === current && lost());
}

export function goLive(client: QueryClient): void {
  queries = client;
  open();
}

export function endLive(): void {
  clearTimeout(timer);
  stream?.abort();
  stream = null;
  lastId = null;
  live.state = "off";
}

/** The state of the stream, for the dot in the bar and for banners. */
export function useLive() {
  return { live, isLive: computed(() => live.state === "live"), reconnect: open };
}

/** Calls `listener` with every event of that name for as long as the component lives. */
export function useLiveEvent<Name extends LiveName>(name: Name, listener: (data: LiveEvents[Name]) => void): void {
  const known = listeners.get(name) ?? new Set();
  listeners.set(name, known);
  known.add(listener as (data: never) => void);
  onScopeDispose(() => known.delete(listener as (data: never) => void));
}
