/**
 * An editor for YAML or JSON: `<CodeEditor v-model="text" language="yaml" label="config.yaml" :check="validate" />`. Its
 * parent gives it a height. A template ref has `goTo(line, column)` and `focus()`.
 */
import { defineAsyncComponent } from "vue";
import Skeleton from "./Skeleton.vue";

export type { Finding } from "./CodeEditorInside.vue";
export default defineAsyncComponent({ loader: () => import("./CodeEditorInside.vue"), loadingComponent: Skeleton, delay: 300 });
