import type { components } from "@/api";

export type Held = components["schemas"]["HeldDefinition"];
export type Pending = components["schemas"]["PendingCall"];
