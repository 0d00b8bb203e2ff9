import { ref } from "vue";

export const paletteOpen = ref(false);
export const helpOpen = ref(false);
