/** The one tooltip that is shown at a time, and where. */
import { shallowRef } from "vue";

export interface Tip {
  id: string;
  text: string;
  mono: boolean;
  at: DOMRect;
}

export const tip = shallowRef<Tip | null>(null);
const DELAY = 400;
/** Going from one to the next, there is no waiting. */
const WARM = 300;
let timer: ReturnType<typeof setTimeout> | undefined;
let hiddenAt = 0;

export function showTip(wish: Tip): void {
  clearTimeout(timer);
  timer = setTimeout(() => (tip.value = wish), Date.now() - hiddenAt < WARM ? 0 : DELAY);
}

export function hideTip(): void {
  clearTimeout(timer);
  if (tip.value) hiddenAt = Date.now();
  tip.value = null;
}
