import { Server } from "@lucide/vue";
import type { RouteRecordRaw } from "vue-router";

const routes: RouteRecordRaw[] = [
  {
    path: "/servers",
    name: "servers",
    component: () => import("./Servers.vue"),
    meta: { nav: { group: "main", order: 20, icon: Server, label: "servers.nav", key: "s", pinned: true } },
  },
  { path: "/servers/add", name: "servers-add", component: () => import("./AddServer.vue") },
  { path: "/servers/edit/:server", name: "servers-edit", component: () => import("./EditServer.vue") },
];
export default routes;
