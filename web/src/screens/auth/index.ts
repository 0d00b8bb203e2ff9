import { KeyRound } from "@lucide/vue";
import type { RouteRecordRaw } from "vue-router";

const routes: RouteRecordRaw[] = [
  {
    path: "/auth",
    name: "auth",
    component: () => import("./Auth.vue"),
    meta: { nav: { group: "main", order: 50, icon: KeyRound, label: "auth.nav", key: "a" } },
  },
  { path: "/auth/add", name: "auth-add", component: () => import("./AddAuth.vue") },
  { path: "/auth/edit/:auth", name: "auth-edit", component: () => import("./EditAuth.vue") },
];
export default routes;
