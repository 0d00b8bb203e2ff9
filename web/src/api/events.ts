/** What `GET /api/events` tells, by the name of the event. */
import type { components } from "./schema";

export type LiveEvents = components["schemas"]["EventShapes"];
export type LiveName = keyof LiveEvents;
