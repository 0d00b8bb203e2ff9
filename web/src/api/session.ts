/** Whether the browser is signed in, as far as the last answer told. The shell shows the login screen when not. */
import { ref } from "vue";

export const signedOut = ref(false);
