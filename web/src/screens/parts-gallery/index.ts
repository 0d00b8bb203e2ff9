import type { RouteRecordRaw } from "vue-router";

/** Not in the navigation: for who builds screens. */
const routes: RouteRecordRaw[] = [{ path: "/parts", name: "parts", component: () => import("./Gallery.vue"), meta: { bare: true } }];
export default routes;
