import { Scale } from "@lucide/vue";
import type { RouteRecordRaw } from "vue-router";

const routes: RouteRecordRaw[] = [
  {
    path: "/policy",
    name: "policy",
    component: () => import("./Policy.vue"),
    meta: { nav: { group: "main", order: 70, icon: Scale, label: "policy.nav", key: "r" } },
  },
];
export default routes;
