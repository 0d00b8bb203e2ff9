/** Every field that a server's entry may have: what is asked at once, and what stands folded because it is rare. */
import type { FieldKind, FieldSpec } from "@/screens/entry/fields";
import type { Entry } from "@/screens/entry/entry";

type Words = (key: string) => string;
type Rare = [path: string, kind: FieldKind, fallback?: string, unit?: "s" | "bytes"];

export const TRANSPORTS = ["stdio", "http", "sse", "websocket"] as const;
export type Transport = (typeof TRANSPORTS)[number];

const CHOICES: Record<string, readonly string[]> = {
  isolation: ["shared", "per_session", "per_call"],
  structured_content: ["include", "omit"],
  schema_format: ["typescript", "json"],
  value_format: ["toon", "json"],
  "connection.framing": ["newline", "content-length"],
};

const RARE: Record<string, readonly Rare[]> = {
  life: [
    ["timeout", "number", "30", "s"],
    ["start_timeout", "number", "", "s"],
    ["lazy", "flag", "off"],
    ["idle_timeout", "number", "300", "s"],
    ["auto_reconnect", "flag", "on"],
    ["retry_on_failure", "flag", "on"],
    ["max_retries", "number", "3"],
    ["retry_delay", "number", "1", "s"],
    ["health_check_enabled", "flag", "on"],
    ["health_check_interval", "number", "30", "s"],
    ["max_age", "number", undefined, "s"],
    ["max_memory", "number", undefined, "bytes"],
  ],
  calls: [
    ["call_timeout", "number", "300", "s"],
    ["limits.in_flight", "number"],
    ["limits.per_minute", "number"],
    ["limits.queue", "number"],
    ["isolation", "choice"],
    ["max_links", "number", "32"],
    ["link_idle", "number", "60", "s"],
    ["cache_ttl", "number", undefined, "s"],
    ["max_message", "number", "16777216", "bytes"],
  ],
  shown: [
    ["prefix", "code"],
    ["result_limit", "number", "16000", "bytes"],
    ["structured_content", "choice"],
    ["schema_format", "choice"],
    ["schema_compression_enabled", "flag", "on"],
    ["max_description_len", "number"],
    ["value_format", "choice"],
    ["toon_compression_enabled", "flag", "on"],
    ["toon_compression_min_size", "number", "3"],
    ["json_compression_enabled", "flag", "on"],
  ],
};
const PROCESS: readonly Rare[] = [
  ["connection.cwd", "code"],
  ["connection.inherit_env", "choice"],
  ["connection.framing", "choice"],
];

const nameOf = (path: string) => path.replace(/^connection\./, "").replaceAll(".", "_");

function spec([path, kind, fallback, unit]: Rare, t: Words): FieldSpec {
  const name = nameOf(path);
  const on = fallback === "on" || fallback === "off";
  return {
    path,
    kind,
    label: t(`servers.fields.${name}`),
    hint: t(`servers.hints.${name}`),
    type: unit ? t(`servers.units.${unit}`) : path.replace(/^connection\./, ""),
    fallback: on ? t(`entry.${fallback}`) : fallback,
    options: CHOICES[path]?.map((value) => ({ value, label: t(`servers.choices.${value.replace("-", "_")}`) })),
  };
}

export interface FieldGroup {
  id: string;
  title: string;
  fields: FieldSpec[];
}

/** What is asked first, by how the server is reached. */
export function mainFields(transport: Transport, t: Words): FieldSpec[] {
  const field = (path: string, kind: FieldKind, more: Partial<FieldSpec> = {}): FieldSpec => ({
    path,
    kind,
    label: t(`servers.fields.${nameOf(path)}`),
    type: path.replace(/^connection\./, ""),
    ...more,
  });
  if (transport === "stdio")
    return [
      field("connection.command", "code", { required: true, placeholder: "npx", hint: t("servers.hints.command") }),
      field("connection.args", "list", { placeholder: "-y\n@modelcontextprotocol/server-filesystem\n/data", hint: t("servers.hints.args") }),
      field("connection.env", "map", { add: t("servers.form.addVariable"), keyHint: "API_KEY", hint: t("servers.hints.env") }),
    ];
  return [
    field("connection.url", "code", { required: true, placeholder: transport === "websocket" ? "wss://example.com/mcp" : transport === "sse" ? "https://example.com/sse" : "https://example.com/mcp" }),
    field("connection.headers", "map", { add: t("servers.form.addHeader"), keyHint: "Authorization", hint: t("servers.hints.headers") }),
  ];
}

/** What is rare, in groups. */
export function rareGroups(transport: Transport, t: Words): FieldGroup[] {
  const groups = Object.entries(RARE).map(([id, fields]) => ({ id, title: t(`servers.form.groups.${id}`), fields: fields.map((one) => spec(one, t)) }));
  if (transport !== "stdio") return groups;
  const process = PROCESS.filter(([path]) => path !== "connection.inherit_env").map((one) => spec(one, t));
  return [{ id: "process", title: t("servers.form.groups.process"), fields: process }, ...groups];
}

export const transportOf = (entry: Entry): Transport => {
  const type = (entry.connection as Entry | undefined)?.type;
  return TRANSPORTS.find((one) => one === type) ?? "stdio";
};

const KEYS: Record<Transport, readonly string[]> = {
  stdio: ["type", "command", "args", "env", "cwd", "inherit_env", "framing"],
  http: ["type", "url", "headers"],
  sse: ["type", "url", "headers"],
  websocket: ["type", "url", "headers"],
};

/** Reached another way: what that way does not know goes, what it shares stays. */
export function withTransport(entry: Entry, transport: Transport): Entry {
  const before = (entry.connection ?? {}) as Entry;
  const kept = Object.fromEntries(Object.entries(before).filter(([key]) => key !== "type" && KEYS[transport].includes(key)));
  const needed: Entry = transport === "stdio" ? { command: "" } : { url: "" };
  return { ...entry, connection: { type: transport, ...needed, ...kept } };
}
