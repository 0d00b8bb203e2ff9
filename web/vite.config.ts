import { fileURLToPath } from "node:url";
import tailwindcss from "@tailwindcss/vite";
import vue from "@vitejs/plugin-vue";
import { defineConfig } from "vite";
import { compressed } from "./scripts/compressed.ts";
import { messages } from "./scripts/messages.ts";

/** Where the admin part of a running gateway listens; only the dev server uses it. */
const gateway = process.env.MCPX_ADMIN_URL ?? "http://127.0.0.1:8080";
const proxied = {
  target: gateway,
  changeOrigin: true,
  headers: { origin: gateway },
};

export default defineConfig({
  base: "./",
  plugins: [vue(), tailwindcss(), messages(), compressed()],
  resolve: { alias: { "@": fileURLToPath(new URL("./src", import.meta.url)) } },
  define: {
    __VUE_OPTIONS_API__: "false",
    __VUE_PROD_DEVTOOLS__: "false",
    __VUE_I18N_LEGACY_API__: "false",
    __VUE_I18N_FULL_INSTALL__: "false",
    __INTLIFY_PROD_DEVTOOLS__: "false",
    __INTLIFY_DROP_MESSAGE_COMPILER__: "true",
    __INTLIFY_JIT_COMPILATION__: "true",
  },
  server: { proxy: { "/api": proxied, "/login": proxied, "/leave": proxied } },
  build: {
    outDir: "../src/mcpx/admin/site",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    chunkSizeWarningLimit: 700,
    rolldownOptions: {
      output: {
        // Few, well-packed files for the first load: what seldom changes, what every screen uses, icons in common use.
        codeSplitting: {
          groups: [
            { name: "base", test: /node_modules[\\/](@?vue|vue-router|vue-i18n|@intlify|@tanstack[\\/](vue-query|query-core)|openapi-fetch)[\\/]/ },
            { name: "icons", test: /node_modules[\\/]@lucide[\\/]/, minShareCount: 2 },
            { name: "parts", test: /src[\\/](parts|api)[\\/](?!ChartInside|CodeEditorInside|MenuInside|editor-look|VirtualList|DiffView|diff|Drawer|Table|table|Dialog|ConfirmDialog|Popover|Gallery)/ },
          ],
        },
      },
    },
  },
});
