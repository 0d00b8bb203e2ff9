/**
 * One EventSource for the whole page. It tells vue-query what is out of date and hands events to who listens. The
 * browser resumes by Last-Event-ID by itself; when the gateway refuses or is down, it is tried again with growing
 * pauses and everything is fetched anew after it came back.
 */
import type { QueryClient } from "@tanstack/vue-query";
import { computed, onScopeDispose, reactive } from "vue";
import { base } from "./client";
import { signedOut } from "./session";

/** What the gateway tells, by the name of the event. */
export interface LiveEvents {
  status: { server: string } & Record<string, unknown>;
  catalog: Record<string, unknown>;
  call: Record<string, unknown>;
  config: Record<string, unknown>;
  approval: Record<string, unknown>;
}
export type LiveName = keyof LiveEvents;

/** The first element of the query keys that an event makes out of date. Calls come often: screens listen to them. */
const OUTDATES: Record<LiveName, readonly string[]> = {
  status: ["servers", "overview"],
  catalog: ["tools", "servers", "overview"],
  call: [],
  config: ["config", "servers", "commands", "auth", "profiles", "policy", "overview", "tools"],
  approval: ["approvals", "overview"],
};
const NAMES = Object.keys(OUTDATES) as LiveName[];
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
let source: EventSource | null = null;
let pause = FIRST_PAUSE;
let timer: ReturnType<typeof setTimeout> | undefined;
let queries: QueryClient | null = null;
let lastId = "";

function told(name: LiveName, message: MessageEvent<string>): void {
  live.heard = Date.now();
  lastId = message.lastEventId || lastId;
  const data = JSON.parse(message.data) as never;
  for (const listener of listeners.get(name) ?? []) listener(data);
  for (const root of OUTDATES[name]) void queries?.invalidateQueries({ queryKey: [root] });
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
  if (live.state === "live") live.state = "reconnecting";
  if (source?.readyState !== EventSource.CLOSED || signedOut.value) return;
  live.state = "reconnecting";
  live.nextTry = Date.now() + pause;
  timer = setTimeout(open, pause);
  pause = Math.min(pause * 2, LONGEST_PAUSE);
}

function open(): void {
  clearTimeout(timer);
  source?.close();
  const url = new URL(`${base}/api/events`);
  if (lastId) url.searchParams.set("last_event_id", lastId);
  source = new EventSource(url);
  source.onopen = opened;
  source.onerror = lost;
  for (const name of NAMES) source.addEventListener(name, (message) => told(name, message as MessageEvent<string>));
}

export function goLive(client: QueryClient): void {
  queries = client;
  open();
}

export function endLive(): void {
  clearTimeout(timer);
  source?.close();
  source = null;
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
