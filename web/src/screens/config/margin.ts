/** What stands beside the lines of the editor: the mistake of a line behind it, and a bar before lines that changed. */
import { forEachDiagnostic, setDiagnosticsEffect } from "@codemirror/lint";
import { Prec, RangeSet, StateEffect, StateField, type Extension, type Range } from "@codemirror/state";
import { Decoration, EditorView, gutter, GutterMarker, ViewPlugin, WidgetType, type DecorationSet, type ViewUpdate } from "@codemirror/view";
import { diffLines } from "@/parts";

class Said extends WidgetType {
  constructor(
    readonly text: string,
    readonly severity: string,
  ) {
    super();
  }
  override eq(other: Said): boolean {
    return other.text === this.text && other.severity === this.severity;
  }
  toDOM(): HTMLElement {
    const words = document.createElement("span");
    words.className = `cm-said cm-said-${this.severity}`;
    words.textContent = this.text;
    words.setAttribute("aria-hidden", "true");
    return words;
  }
}

const MOST = 90;
const shortened = (text: string) => (text.length > MOST ? `${text.slice(0, MOST)}…` : text);

function saidBehind(view: EditorView): DecorationSet {
  const byLine = new Map<number, Range<Decoration>>();
  forEachDiagnostic(view.state, (one, from) => {
    const line = view.state.doc.lineAt(from);
    if (!byLine.has(line.to)) byLine.set(line.to, Decoration.widget({ widget: new Said(shortened(one.message), one.severity), side: 1 }).range(line.to));
  });
  return Decoration.set([...byLine.values()], true);
}

const behindLines = ViewPlugin.fromClass(
  class {
    decorations: DecorationSet;
    constructor(view: EditorView) {
      this.decorations = saidBehind(view);
    }
    update(update: ViewUpdate): void {
      const told = update.transactions.some((one) => one.effects.some((effect) => effect.is(setDiagnosticsEffect)));
      if (told) this.decorations = saidBehind(update.view);
      else if (update.docChanged) this.decorations = this.decorations.map(update.changes);
    }
  },
  { decorations: (plugin) => plugin.decorations },
);

class Bar extends GutterMarker {
  override elementClass = "cm-changed";
}
const bar = new Bar();
const setChanged = StateEffect.define<RangeSet<GutterMarker>>();
const changedLines = StateField.define<RangeSet<GutterMarker>>({
  create: () => RangeSet.empty,
  update(marks, change) {
    for (const effect of change.effects) if (effect.is(setChanged)) return effect.value;
    return marks.map(change.changes);
  },
});

/** Marks the lines that are not as in `base`. */
export function markChanged(view: EditorView, base: string): void {
  const text = view.state.doc.toString();
  const lines = text === base ? [] : diffLines(base, text).flatMap((line) => (line.kind === "add" ? [line.after!] : []));
  view.dispatch({ effects: setChanged.of(RangeSet.of(lines.filter((line) => line <= view.state.doc.lines).map((line) => bar.range(view.state.doc.line(line).from)))) });
}

const look = EditorView.theme({
  ".cm-said": { paddingLeft: "20px", fontFamily: "var(--font-sans)", whiteSpace: "pre" },
  ".cm-said-error": { color: "var(--danger-fg)" },
  ".cm-said-warning": { color: "var(--warn-fg)" },
  ".cm-changed-gutter": { width: "3px" },
  ".cm-changed-gutter .cm-gutterElement.cm-changed": { backgroundColor: "var(--accent)" },
  ".config-explained": { maxWidth: "420px", padding: "8px 12px", fontFamily: "var(--font-sans)", lineHeight: "18px", overflowWrap: "anywhere" },
  ".config-explained p + p": { marginTop: "4px", color: "var(--text-2)" },
});

export const margin: Extension = [behindLines, changedLines, Prec.highest(gutter({ class: "cm-changed-gutter", markers: (view) => view.state.field(changedLines) })), look];
