import { Layers } from "@lucide/vue";
import type { RouteRecordRaw } from "vue-router";

const routes: RouteRecordRaw[] = [
  {
    path: "/profiles",
    name: "profiles",
    component: () => import("./Profiles.vue"),
    meta: { nav: { group: "main", order: 60, icon: Layers, label: "profiles.nav", key: "p" } },
  },
];
export default routes;
