/**
 * The typed client: `const { servers } = await take(api.GET("/api/mcp-servers"))`. Every failure is an `ApiError`; a
 * 401 leads to the login screen. Paths are relative to the page, so that a proxy may put it anywhere.
 */
import createClient, { type Middleware } from "openapi-fetch";
import { ApiError } from "./errors";
import { configEtag } from "./etag";
import { inOwnWords, wordsReady } from "./said";
import { refused, secretIn, sessionHeaders } from "./session";
import type { paths } from "./schema";

const SAFE = new Set(["GET", "HEAD", "OPTIONS"]);

export const base = new URL(".", document.baseURI).href.replace(/\/$/, "");

/** A request past the typed client, for streams. Failures are thrown as `ApiError`. */
export async function send(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers({ ...(init.headers as Record<string, string> | undefined), ...sessionHeaders() });
  const response = await fetch(`${base}${path}`, { ...init, credentials: "same-origin", headers });
  if (response.ok) return response;
  if (response.status === 401) refused(secretIn(headers));
  throw await ApiError.from(response);
}

async function learnEtag(): Promise<void> {
  const response = await fetch(`${base}/api/config`, { credentials: "same-origin", headers: sessionHeaders() });
  configEtag.value = response.headers.get("ETag");
}

const house: Middleware = {
  async onRequest({ request }) {
    for (const [name, value] of Object.entries(sessionHeaders())) request.headers.set(name, value);
    request.headers.set("X-Mcpx-Via", "ui");
    if (!SAFE.has(request.method) && !request.headers.has("If-Match")) {
      if (configEtag.value === null) await learnEtag();
      if (configEtag.value !== null) request.headers.set("If-Match", configEtag.value);
    }
    return request;
  },
  async onResponse({ request, response }) {
    const etag = response.headers.get("ETag");
    if (etag !== null) configEtag.value = etag;
    if (response.ok) return undefined;
    if (response.status === 401) refused(secretIn(request.headers));
    throw await ApiError.from(response);
  },
  onError({ error }) {
    return ApiError.of(error);
  },
};

export const api = createClient<paths>({ baseUrl: base, credentials: "same-origin" });
api.use(house);

/** The body of an answer that is known to be there, in the words of the page: failures have been thrown before. */
export async function take<T>(answer: Promise<{ data?: T }>): Promise<T> {
  const { data } = await answer;
  await wordsReady();
  return inOwnWords(data as T);
}
