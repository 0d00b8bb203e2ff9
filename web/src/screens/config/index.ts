import { FileCog } from "@lucide/vue";
import type { RouteRecordRaw } from "vue-router";

const routes: RouteRecordRaw[] = [
  {
    path: "/config",
    component: () => import("./Config.vue"),
    children: [
      {
        path: "",
        name: "config",
        component: () => import("./Editor.vue"),
        meta: { nav: { group: "setup", order: 20, icon: FileCog, label: "config.nav", key: "f" } },
      },
      { path: "history", name: "config-history", component: () => import("./History.vue") },
      { path: "import", name: "config-import", component: () => import("./Import.vue") },
      { path: "export", name: "config-export", component: () => import("./Export.vue") },
    ],
  },
];
export default routes;
