/**
 * Keys of the page: `useKeys({ r: restart, "/": focusSearch })`, for as long as the component lives. They rest while
 * the user types, while Ctrl, Alt or Meta is held and while a dialog is open. Two-key names ("g s") are sequences.
 */
import { onBeforeUnmount, onMounted } from "vue";

type Handler = (event: KeyboardEvent) => void;
const layers: Record<string, Handler>[] = [];
const SEQUENCE_WITHIN = 1_000;
let first = "";
let firstAt = 0;

const EDITABLE = 'input:not([type="checkbox"]):not([type="radio"]), textarea, select, [contenteditable="true"], .cm-editor';
const busy = (target: EventTarget | null) =>
  (target instanceof Element && target.closest(EDITABLE) !== null) || document.querySelector('[role="dialog"][data-state="open"], [role="menu"]') !== null;

function find(name: string): Handler | undefined {
  for (let at = layers.length - 1; at >= 0; at--) {
    const handler = layers[at]![name];
    if (handler) return handler;
  }
  return undefined;
}

function pressed(event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || busy(event.target)) return;
  const sequence = event.timeStamp - firstAt < SEQUENCE_WITHIN ? find(`${first} ${event.key}`) : undefined;
  const handler = sequence ?? find(event.key);
  first = sequence ? "" : event.key;
  firstAt = event.timeStamp;
  if (!handler) return;
  event.preventDefault();
  handler(event);
}

export function useKeys(keys: Record<string, Handler>): void {
  onMounted(() => {
    if (!layers.length) document.addEventListener("keydown", pressed);
    layers.push(keys);
  });
  onBeforeUnmount(() => {
    layers.splice(layers.indexOf(keys), 1);
    if (!layers.length) document.removeEventListener("keydown", pressed);
  });
}
