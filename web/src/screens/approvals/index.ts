import { ShieldCheck } from "@lucide/vue";
import type { RouteRecordRaw } from "vue-router";

const routes: RouteRecordRaw[] = [
  {
    path: "/approvals",
    name: "approvals",
    component: () => import("./Approvals.vue"),
    meta: { nav: { group: "watch", order: 20, icon: ShieldCheck, label: "approvals.nav", key: "v", pinned: true } },
  },
];
export default routes;
