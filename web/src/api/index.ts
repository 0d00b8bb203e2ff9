export { api, base, take } from "./client";
export { ApiError } from "./errors";
export { configEtag, useEdit } from "./etag";
export { useLive, useLiveEvent, type LiveEvents } from "./live";
export type { components, paths } from "./schema";
