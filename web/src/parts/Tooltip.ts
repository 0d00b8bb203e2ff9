/** `<Tooltip text="…"><button>…</button></Tooltip>`: a short text at what the pointer or the keyboard is on. */
import { cloneVNode, defineComponent, onBeforeUnmount, useId } from "vue";
import { hideTip, showTip, tip } from "./tips";

export default defineComponent({
  inheritAttrs: false,
  props: { text: { type: String, required: true }, mono: Boolean },
  setup(props, { slots, attrs }) {
    const id = useId();
    const show = (event: Event) => showTip({ id, text: props.text, mono: props.mono, at: (event.currentTarget as Element).getBoundingClientRect() });
    const focused = (event: FocusEvent) => {
      if ((event.currentTarget as Element).matches(":focus-visible")) show(event);
    };
    onBeforeUnmount(() => {
      if (tip.value?.id === id) hideTip();
    });
    return () => {
      const [child] = slots.default?.() ?? [];
      if (!child) return null;
      const shown = tip.value?.id === id;
      return cloneVNode(child, {
        ...attrs,
        "aria-describedby": shown ? `tip-${id}` : undefined,
        onPointerenter: show,
        onPointerleave: hideTip,
        onPointerdown: hideTip,
        onFocus: focused,
        onBlur: hideTip,
      });
    };
  },
});
