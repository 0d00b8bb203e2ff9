/**
 * Collects the screens: `src/screens/<screen>/index.ts` default-exports its route records, whose components are loaded
 * when they are first shown. `meta.nav` puts a route into the navigation.
 */
import { ref, watch, type Component } from "vue";
import { createRouter, createWebHashHistory, type RouteLocationNormalizedLoaded, type RouteRecordRaw } from "vue-router";
import { signedOut } from "@/api/session";
import { FIRST } from "./first";
import { loadAllTexts } from "./texts";

export type NavGroup = "main" | "watch" | "setup";

export interface NavEntry {
  group: NavGroup;
  /** The place in the group, in tens. */
  order: number;
  icon: Component;
  /** A key of the texts, with the screen's name: "servers.nav". */
  label: string;
  /** The letter after `g` that goes there. */
  key?: string;
  /** Stands in the bar at the bottom of narrow screens. */
  pinned?: boolean;
}

declare module "vue-router" {
  interface RouteMeta {
    nav?: NavEntry;
    /** Shown without navigation and bar, also to who is not signed in. */
    bare?: boolean;
  }
}

const screens = import.meta.glob<{ default: RouteRecordRaw[] }>("../screens/*/index.ts", { eager: true });
const routes = Object.values(screens).flatMap((screen) => screen.default);

export const router = createRouter({
  history: createWebHashHistory(),
  routes: [...routes, { path: "/:rest(.*)*", name: "not-found", component: () => import("./NotFound.vue") }],
  scrollBehavior: (_to, _from, kept) => kept ?? undefined,
});

router.beforeEach((to) => (signedOut.value && !to.meta.bare ? { name: "login", query: { next: to.fullPath } } : true));

/** Asked for beside the screen, and there before it is shown. */
let texts: Promise<void> | null = null;
router.beforeEach((to) => {
  texts = FIRST.includes(String(to.name)) ? null : loadAllTexts();
  texts?.catch(() => {}); // told where it is waited for
});
router.beforeResolve(async () => {
  await texts;
});

/** Where somebody wanted to go, but the files of that screen did not come: the gateway is down, or is another version. */
export const notLoaded = ref<string | null>(null);
router.onError((_fault, to) => (notLoaded.value = to.fullPath));
router.afterEach((_to, _from, failure) => {
  if (!failure) notLoaded.value = null;
});

watch(signedOut, (out) => {
  const now = router.currentRoute.value;
  if (out && !now.meta.bare) void router.push({ name: "login", query: { next: notLoaded.value ?? now.fullPath } });
});

const GROUPS: readonly NavGroup[] = ["main", "watch", "setup"];

export interface NavItem extends NavEntry {
  name: string;
}

export const navItems: NavItem[] = router
  .getRoutes()
  .flatMap((route) => (route.meta.nav ? [{ ...route.meta.nav, name: String(route.name) }] : []))
  .sort((a, b) => GROUPS.indexOf(a.group) - GROUPS.indexOf(b.group) || a.order - b.order);
/** Whether a screen, or a page below it ("servers-add"), is shown. */
export const isHere = (name: string, route: RouteLocationNormalizedLoaded): boolean => route.name === name || String(route.name ?? "").startsWith(`${name}-`);
export const navGroups = GROUPS.filter((group) => navItems.some((item) => item.group === group));
