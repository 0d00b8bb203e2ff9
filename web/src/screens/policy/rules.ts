/** The rules of a policy as the screen holds them: plain entries in their order, never changed in place. */
import { CircleCheck, CircleHelp, CircleX } from "@lucide/vue";
import type { Component } from "vue";
import type { Hue } from "@/parts";
import { asEntry, type Entry } from "@/screens/entry/entry";

export type Effect = "allow" | "deny" | "ask";

export const EFFECTS: Record<Effect, { hue: Hue; icon: Component }> = {
  allow: { hue: "ok", icon: CircleCheck },
  deny: { hue: "danger", icon: CircleX },
  ask: { hue: "hold", icon: CircleHelp },
};

export const rulesOf = (policy: Entry): Entry[] => (Array.isArray(policy.rules) ? policy.rules.map(asEntry) : []);
export const withRules = (policy: Entry, rules: readonly Entry[]): Entry => ({ ...policy, rules });
export const isEffect = (value: unknown): value is Effect => value === "allow" || value === "deny" || value === "ask";

export function moved(rules: readonly Entry[], from: number, to: number): Entry[] {
  const next = [...rules];
  const [rule] = next.splice(from, 1);
  next.splice(to, 0, rule!);
  return next;
}

const listed = (value: unknown): string[] => (Array.isArray(value) ? value.map(String) : value === undefined || value === null ? [] : [String(value)]);

export interface Condition {
  key: "profiles" | "principals" | "servers" | "tools" | "read_only" | "destructive" | "arguments";
  values: string[];
}

/** What must hold for a call; empty: it holds for every one. */
export function conditionsOf(rule: Entry): Condition[] {
  const found: Condition[] = [];
  for (const key of ["profiles", "principals", "servers", "tools"] as const) if (rule[key] !== undefined && rule[key] !== null) found.push({ key, values: listed(rule[key]) });
  for (const key of ["read_only", "destructive"] as const) if (rule[key] !== undefined && rule[key] !== null) found.push({ key, values: [String(rule[key])] });
  const asked = asEntry(rule.arguments);
  if (Object.keys(asked).length) {
    found.push({ key: "arguments", values: Object.entries(asked).map(([name, wanted]) => `${name}: ${typeof wanted === "string" ? wanted : JSON.stringify(wanted)}`) });
  }
  return found;
}
