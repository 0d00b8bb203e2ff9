import type { RouteRecordRaw } from "vue-router";

const routes: RouteRecordRaw[] = [{ path: "/login", name: "login", component: () => import("./Login.vue"), meta: { bare: true } }];
export default routes;
