import { ChartColumn } from "@lucide/vue";
import type { RouteRecordRaw } from "vue-router";

const routes: RouteRecordRaw[] = [
  {
    path: "/savings",
    name: "savings",
    component: () => import("./Savings.vue"),
    meta: { nav: { group: "watch", order: 30, icon: ChartColumn, label: "savings.nav", key: "u" } },
  },
];
export default routes;
