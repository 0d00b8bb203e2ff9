/** Short messages at the corner, and words that only a screen reader says. */
import { reactive, ref } from "vue";
import type { Hue } from "./hues";

export interface Toast {
  id: number;
  title: string;
  text?: string;
  hue: Hue;
  action?: { label: string; run: () => void };
}

export const toasts = reactive<Toast[]>([]);
export const announced = ref("");
const STAYS = 6_000;
let count = 0;

export function dropToast(id: number): void {
  const at = toasts.findIndex((toast) => toast.id === id);
  if (at >= 0) toasts.splice(at, 1);
}

/** `toast({ title: "Revision 15 applied", text: "1 started", action: { label: "Undo", run } })` */
export function toast(wish: { title: string; text?: string; hue?: Hue; action?: Toast["action"] }): void {
  const id = ++count;
  toasts.push({ hue: "ok", ...wish, id });
  if (toasts.length > 4) toasts.shift();
  setTimeout(() => dropToast(id), wish.hue === "danger" || wish.action ? STAYS * 2 : STAYS);
}

export function announce(words: string): void {
  announced.value = "";
  requestAnimationFrame(() => (announced.value = words));
}
