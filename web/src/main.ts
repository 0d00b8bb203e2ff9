import "./assets/app.css";
import { VueQueryPlugin } from "@tanstack/vue-query";
import { createApp } from "vue";
import { queryClient } from "./api/queries";
import App from "./shell/App.vue";
import { router } from "./shell/router";
import { i18n, loadFirstLanguage } from "./shell/texts";
import { followTheme } from "./shell/theme";

followTheme();
const app = createApp(App).use(router).use(i18n).use(VueQueryPlugin, { queryClient });
void Promise.all([loadFirstLanguage(), router.isReady()]).then(() => app.mount("#app"));
