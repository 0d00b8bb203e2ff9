import { LayoutDashboard } from "@lucide/vue";
import type { RouteRecordRaw } from "vue-router";

const routes: RouteRecordRaw[] = [
  {
    path: "/",
    name: "overview",
    component: () => import("./Overview.vue"),
    meta: { nav: { group: "main", order: 10, icon: LayoutDashboard, label: "overview.nav", key: "o", pinned: true } },
  },
];
export default routes;
