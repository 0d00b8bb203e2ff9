export { api, base, send, take } from "./client";
export { ApiError } from "./errors";
export { configEtag, useEdit } from "./etag";
export { frames, type Frame } from "./frames";
export { useLive, useLiveEvent, type LiveEvents } from "./live";
export { NEW_TAB, outside } from "./outside";
export type { components, paths } from "./schema";
