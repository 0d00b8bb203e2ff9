/** What the list of servers shows of each: its group, its one line, its one action. */
import type { components } from "@/api";
import { shownStatus } from "@/parts";

export type ServerRow = components["schemas"]["ServerRow"];
export type ServerDetail = components["schemas"]["ServerDetail"];
export type Trial = components["schemas"]["TrialResult"];

export const GROUPS = ["all", "attention", "ready", "starting", "off"] as const;
export type Group = (typeof GROUPS)[number];

const GROUP_OF: Record<string, Group> = {
  connected: "ready",
  connecting: "starting",
  degraded: "attention",
  needs_auth: "attention",
  quarantined: "attention",
  disconnected: "attention",
  sleeping: "off",
  disabled: "off",
};
/** Troubled ones first, those that only wait for something last. */
const RANK = ["disconnected", "needs_auth", "quarantined", "degraded", "connecting", "connected", "sleeping", "disabled"];

/** Switched on in the file, yet off: it needs something that is not there. */
export const isHindered = (row: ServerRow): boolean => row.status === "disabled" && !!row.last_error;
/** As the file has it. */
export const isOn = (row: ServerRow): boolean => row.enabled || isHindered(row);
export const groupOf = (row: ServerRow): Group => (isHindered(row) || row.held ? "attention" : (GROUP_OF[shownStatus(row)] ?? "off"));
export const rankOf = (row: ServerRow): number => (isHindered(row) ? 0 : RANK.indexOf(shownStatus(row)));

/** Where it is reached, as short as it can be told apart. */
export function addressOf(row: ServerRow): string {
  const { connection } = row;
  if (row.transport !== "stdio") return String(connection.url ?? "").replace(/^(https?|wss?):\/\//, "");
  const args = Array.isArray(connection.args) ? connection.args : [];
  return row.command_line ?? [connection.command, ...args].filter(Boolean).join(" ");
}

export function matches(row: ServerRow, words: string): boolean {
  const all = `${row.name} ${row.description ?? ""} ${row.transport} ${addressOf(row)} ${row.last_error ?? ""}`.toLowerCase();
  return words
    .toLowerCase()
    .split(/\s+/)
    .every((word) => all.includes(word));
}

const quoted = (word: string) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`);

/** What starts the same program in a shell: secrets are left to the variables that are set there. */
export function shellCommand(row: ServerRow): string {
  const { connection } = row;
  const env = Object.entries((connection.env ?? {}) as Record<string, unknown>).map(([key, value]) => {
    const text = String(value);
    return /•|\$\{/.test(text) ? `${key}="$${/^\$\{([A-Za-z_]\w*)/.exec(text)?.[1] ?? key}"` : `${key}=${quoted(text)}`;
  });
  const words = [connection.command, ...(Array.isArray(connection.args) ? connection.args : [])].map((word) => quoted(String(word ?? "")));
  const line = [...env, ...words].join(" ");
  return connection.cwd ? `cd ${quoted(String(connection.cwd))} && ${line}` : line;
}

/** Only what a browser may open: a server says where, and must not say `javascript:`. */
export const safeUrl = (url: string | null | undefined): string | null => (url && /^https?:\/\//i.test(url) ? url : null);
