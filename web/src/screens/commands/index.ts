import { SquareTerminal } from "@lucide/vue";
import type { RouteRecordRaw } from "vue-router";

const routes: RouteRecordRaw[] = [
  {
    path: "/commands",
    name: "commands",
    component: () => import("./Commands.vue"),
    meta: { nav: { group: "main", order: 40, icon: SquareTerminal, label: "commands.nav", key: "c" } },
  },
  { path: "/commands/new", name: "commands-new", component: () => import("./NewCommand.vue") },
  { path: "/commands/import", name: "commands-import", component: () => import("./ImportCommands.vue") },
];
export default routes;
