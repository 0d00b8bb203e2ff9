import "./assets/app.css";
import { VueQueryPlugin } from "@tanstack/vue-query";
import { createApp } from "vue";
import { queryClient } from "./api/queries";
import { findSession } from "./api/session";
import App from "./shell/App.vue";
import { router } from "./shell/router";
import { i18n, loadFirstLanguage } from "./shell/texts";
import { followTheme } from "./shell/theme";

followTheme();
const texts = loadFirstLanguage();

async function start(): Promise<void> {
  await findSession();
  const app = createApp(App).use(router).use(i18n).use(VueQueryPlugin, { queryClient });
  await Promise.all([texts, router.isReady()]);
  app.mount("#app");
}
void start();
