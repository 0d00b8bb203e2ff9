import { Wrench } from "@lucide/vue";
import type { RouteRecordRaw } from "vue-router";

const routes: RouteRecordRaw[] = [
  {
    path: "/tools",
    name: "tools",
    component: () => import("./Tools.vue"),
    meta: { nav: { group: "main", order: 30, icon: Wrench, label: "tools.nav", key: "t", pinned: true } },
  },
  { path: "/tools/:name", name: "tools-one", redirect: (to) => ({ name: "tools", query: { ...to.query, tool: to.params.name as string } }) },
];
export default routes;
