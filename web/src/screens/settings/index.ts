import { Settings } from "@lucide/vue";
import type { RouteRecordRaw } from "vue-router";

const routes: RouteRecordRaw[] = [
  {
    path: "/settings",
    name: "settings",
    component: () => import("./SettingsPage.vue"),
    meta: { nav: { group: "setup", order: 30, icon: Settings, label: "settings.nav", key: "e" } },
  },
];
export default routes;
