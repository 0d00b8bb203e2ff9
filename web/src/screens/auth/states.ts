/** How each state of an auth config looks. */
import { CircleCheck, CircleDashed, CircleX, Clock, KeyRound } from "@lucide/vue";
import type { Component } from "vue";
import type { Hue } from "@/parts";
import type { AuthRow } from "./kinds";

export const STATES: Record<NonNullable<AuthRow["state"]>, { hue: Hue; icon: Component }> = {
  ready: { hue: "ok", icon: CircleCheck },
  expires: { hue: "warn", icon: Clock },
  sign_in_needed: { hue: "warn", icon: KeyRound },
  failed: { hue: "danger", icon: CircleX },
  unused: { hue: "off", icon: CircleDashed },
};
