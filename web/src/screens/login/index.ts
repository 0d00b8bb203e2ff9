import type { NavigationGuard, RouteRecordRaw } from "vue-router";
import { api, take } from "@/api/client";
import { signedOut } from "@/api/session";
import { nextOf } from "./next";

/** Who is signed in already is not asked again. */
const passOn: NavigationGuard = async (to) => {
  if (signedOut.value || typeof to.query.token === "string") return true;
  try {
    return (await take(api.GET("/api/session"))).signed_in ? nextOf(to) : true;
  } catch {
    return true; // the form tells what is wrong
  }
};

const routes: RouteRecordRaw[] = [{ path: "/login", name: "login", component: () => import("./Login.vue"), beforeEnter: passOn, meta: { bare: true } }];
export default routes;
