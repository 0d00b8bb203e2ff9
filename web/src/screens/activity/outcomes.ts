/** How a call ended: colour, icon and word. */
import { Ban, CircleCheck, CircleX, ShieldX, TriangleAlert } from "@lucide/vue";
import type { Component } from "vue";
import type { components } from "@/api";
import type { Hue } from "@/parts";

export type CallRow = components["schemas"]["CallRow"];
export type Outcome = CallRow["outcome"];

export const OUTCOMES: readonly Outcome[] = ["ok", "tool_error", "error", "cancelled", "denied"];
export const LOOK: Record<Outcome, { hue: Hue; icon: Component }> = {
  ok: { hue: "ok", icon: CircleCheck },
  tool_error: { hue: "warn", icon: TriangleAlert },
  error: { hue: "danger", icon: CircleX },
  cancelled: { hue: "off", icon: Ban },
  denied: { hue: "hold", icon: ShieldX },
};
