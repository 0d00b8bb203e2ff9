import { Activity } from "@lucide/vue";
import type { RouteRecordRaw } from "vue-router";

const routes: RouteRecordRaw[] = [
  {
    path: "/activity",
    name: "activity",
    component: () => import("./Activity.vue"),
    meta: { nav: { group: "watch", order: 10, icon: Activity, label: "activity.nav", key: "l" } },
  },
];
export default routes;
