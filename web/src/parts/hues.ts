/** The status hues: how a word, a badge and a panel of each look. */
export type Hue = "ok" | "busy" | "warn" | "danger" | "hold" | "off" | "accent";

export const HUE_TEXT: Record<Hue, string> = {
  ok: "text-ok",
  busy: "text-busy",
  warn: "text-warn",
  danger: "text-danger",
  hold: "text-hold",
  off: "text-off",
  accent: "text-accent",
};

export const HUE_SOFT: Record<Hue, string> = {
  ok: "bg-ok-soft text-ok",
  busy: "bg-busy-soft text-busy",
  warn: "bg-warn-soft text-warn",
  danger: "bg-danger-soft text-danger",
  hold: "bg-hold-soft text-hold",
  off: "bg-off-soft text-off",
  accent: "bg-accent-soft text-accent",
};

export const HUE_PANEL: Record<Hue, string> = {
  ok: "bg-ok-soft border-ok-line",
  busy: "bg-busy-soft border-busy-line",
  warn: "bg-warn-soft border-warn-line",
  danger: "bg-danger-soft border-danger-line",
  hold: "bg-hold-soft border-hold-line",
  off: "bg-off-soft border-off-line",
  accent: "bg-accent-soft border-accent-line",
};
