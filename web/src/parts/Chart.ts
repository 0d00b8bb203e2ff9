/**
 * Values over time: `<Chart :times="seconds" :series="[{ label, values }]" label="Calls per minute" />`, `times` in
 * seconds since the epoch. Errors are a series with `kind: "bars"` and `colour: "chart-bad"`.
 */
import { defineAsyncComponent } from "vue";

export type { Series } from "./ChartInside.vue";
export default defineAsyncComponent(() => import("./ChartInside.vue"));
