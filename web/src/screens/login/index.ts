import type { NavigationGuard, RouteRecordRaw } from "vue-router";
import { nextOf } from "./next";
import { isSignedIn } from "./signed-in";

/** Who is signed in already is not asked again. */
const passOn: NavigationGuard = async (to) => {
  if (typeof to.query.token === "string") return true;
  return (await isSignedIn()) ? nextOf(to) : true;
};

const routes: RouteRecordRaw[] = [{ path: "/login", name: "login", component: () => import("./Login.vue"), beforeEnter: passOn, meta: { bare: true } }];
export default routes;
