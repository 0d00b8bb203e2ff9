/**
 * Calls of tools from this page: begun over the event stream, heard while they run, cancelled by their id. What was run
 * is kept for as long as the browser's tab is open, a bounded number of runs of each tool and of all.
 */
import { reactive, shallowReactive } from "vue";
import { api, ApiError, frames, send, type components, type Frame } from "@/api";
import type { Fields } from "@/schemaform";

type CallResult = components["schemas"]["CallResult"];

export interface Run {
  id: string;
  tool: string;
  arguments: Fields;
  began: number;
  state: "running" | "ok" | "failed" | "cancelled";
  progress: { progress: number; total: number | null; message: string | null } | null;
  log: { level: string; text: string }[];
  result: CallResult | null;
  fault: ApiError | null;
  ended: number | null;
}

const MOST_OF_ONE = 10;
const MOST = 60;
const MOST_LINES = 500;
const runs = shallowReactive<Run[]>([]);

export const runsOf = (tool: string): Run[] => runs.filter((run) => run.tool === tool);

function keep(run: Run): void {
  runs.unshift(run);
  const old = runs.filter((other) => other.tool === run.tool).slice(MOST_OF_ONE);
  for (const other of [...old, ...runs.slice(MOST)]) if (runs.includes(other)) runs.splice(runs.indexOf(other), 1);
}

function heard(run: Run, { event, data }: Frame): void {
  const told = JSON.parse(data) as Record<string, unknown>;
  const line = (level: string, text: unknown) => {
    if (run.log.length < MOST_LINES) run.log.push({ level, text: typeof text === "string" ? text : JSON.stringify(text) });
  };
  if (event === "progress") {
    run.progress = { progress: Number(told.progress) || 0, total: typeof told.total === "number" ? told.total : null, message: typeof told.message === "string" ? told.message : null };
  } else if (event === "message") line(String(told.level ?? "info"), told.text);
  else if (event === "question") line("question", told.message || told.method);
  else if (event === "result") run.result = told as unknown as CallResult;
}

const CANCELLED = -32800;

function finish(run: Run): void {
  run.ended = Date.now();
  if (run.result?.ok) run.state = "ok";
  else run.state = run.result?.error?.code === CANCELLED ? "cancelled" : "failed";
}

export function start(tool: string, given: Fields): Run {
  const run = reactive<Run>({
    id: crypto.getRandomValues(new Uint32Array(3)).reduce((text, part) => text + part.toString(36), "ui-"),
    tool,
    arguments: given,
    began: Date.now(),
    state: "running",
    progress: null,
    log: [],
    result: null,
    fault: null,
    ended: null,
  });
  keep(run);
  void hear(run);
  return run;
}

async function hear(run: Run): Promise<void> {
  try {
    const response = await send(`/api/tools/${encodeURIComponent(run.tool)}/call`, {
      method: "POST",
      headers: { "Content-Type": "application/json", Accept: "text/event-stream" },
      body: JSON.stringify({ arguments: run.arguments, call_id: run.id }),
    });
    if (response.headers.get("Content-Type")?.startsWith("application/json")) run.result = (await response.json()) as CallResult;
    else if (response.body) for await (const frame of frames(response.body)) heard(run, frame);
    if (!run.result) throw new ApiError(0, "cut_off", "the stream ended before the result came");
  } catch (fault) {
    run.fault = ApiError.of(fault);
  }
  finish(run);
}

export async function cancel(run: Run): Promise<void> {
  await api.DELETE("/api/calls/{id}", { params: { path: { id: run.id } } });
}
