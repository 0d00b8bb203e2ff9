import type { RouteLocationNormalized } from "vue-router";

/** Where somebody wanted to go who was asked to sign in first. */
export function nextOf(route: RouteLocationNormalized): string {
  const next = route.query.next;
  return typeof next === "string" && next.startsWith("/") && !next.startsWith("/login") ? next : "/";
}
