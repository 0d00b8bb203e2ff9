import { Plug } from "@lucide/vue";
import type { RouteRecordRaw } from "vue-router";

const routes: RouteRecordRaw[] = [
  {
    path: "/connect",
    name: "connect",
    component: () => import("./Connect.vue"),
    meta: { nav: { group: "setup", order: 10, icon: Plug, label: "connect.nav", key: "n" } },
  },
];
export default routes;
