/** The eight states of a server: word, hue and icon. */
import { CircleCheck, CircleSlash, CircleX, KeyRound, LoaderCircle, Moon, ShieldAlert, TriangleAlert } from "@lucide/vue";
import type { Component } from "vue";
import type { Hue } from "./hues";

export interface StatusLook {
  hue: Hue;
  icon: Component;
  /** A key of the texts under `parts.status`. */
  word: string;
  turns?: boolean;
}

const LOOKS: Record<string, StatusLook> = {
  connected: { hue: "ok", icon: CircleCheck, word: "ready" },
  connecting: { hue: "busy", icon: LoaderCircle, word: "starting", turns: true },
  degraded: { hue: "warn", icon: TriangleAlert, word: "degraded" },
  needs_auth: { hue: "warn", icon: KeyRound, word: "needs_auth" },
  quarantined: { hue: "hold", icon: ShieldAlert, word: "quarantined" },
  sleeping: { hue: "off", icon: Moon, word: "sleeping" },
  disabled: { hue: "off", icon: CircleSlash, word: "disabled" },
  disconnected: { hue: "danger", icon: CircleX, word: "failed" },
};
export const STATUSES = Object.keys(LOOKS);

/** A state this page does not know yet is shown as off rather than hidden. */
export const statusLook = (status: string): StatusLook => LOOKS[status] ?? { hue: "off", icon: CircleSlash, word: "unknown" };

/** What a row of servers shows: held by trust goes before the state of the connection. */
export const shownStatus = (row: { status: string; quarantined?: boolean }): string => (row.quarantined ? "quarantined" : row.status);
