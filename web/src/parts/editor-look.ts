/** How the editor looks: the tokens of the page, so that it follows the theme by itself. */
import { HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { EditorView } from "@codemirror/view";
import { tags } from "@lezer/highlight";

const colours = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName), tags.keyword], color: "var(--code-key)" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--code-str)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--code-num)" },
  { tag: tags.comment, color: "var(--code-com)" },
  { tag: [tags.labelName, tags.typeName, tags.meta], color: "var(--code-ref)" },
]);

const frame = EditorView.theme({
  "&": { height: "100%", backgroundColor: "var(--surface)", color: "var(--text-1)", fontSize: "12px" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--font-mono)", lineHeight: "20px" },
  ".cm-content": { caretColor: "var(--text-1)", padding: "8px 0" },
  ".cm-cursor": { borderLeftColor: "var(--text-1)" },
  ".cm-gutters": { backgroundColor: "var(--surface)", color: "var(--text-3)", border: "none" },
  ".cm-lineNumbers .cm-gutterElement": { minWidth: "40px", padding: "0 12px 0 8px" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--hover)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground, .cm-content ::selection": {
    backgroundColor: "var(--accent-soft) !important",
  },
  ".cm-matchingBracket": { backgroundColor: "var(--accent-soft) !important", outline: "1px solid var(--accent-line)" },
  ".cm-searchMatch": { backgroundColor: "var(--warn-soft)", outline: "1px solid var(--warn-line)" },
  ".cm-panels": { backgroundColor: "var(--sunken)", color: "var(--text-1)", borderColor: "var(--line)" },
  ".cm-tooltip": { backgroundColor: "var(--raised)", color: "var(--text-1)", border: "1px solid var(--line)", borderRadius: "6px", boxShadow: "var(--shadow-pop)", overflow: "hidden" },
  ".cm-tooltip-autocomplete > ul": { fontFamily: "var(--font-mono)" },
  ".cm-tooltip-autocomplete > ul > li": { padding: "2px 8px !important" },
  ".cm-tooltip-autocomplete > ul > li[aria-selected]": { backgroundColor: "var(--selected) !important", color: "var(--text-1) !important" },
  ".cm-completionDetail": { color: "var(--text-3)", fontStyle: "normal" },
  ".cm-diagnostic": { fontFamily: "var(--font-sans)", padding: "4px 8px" },
  ".cm-diagnostic-error": { borderLeft: "3px solid var(--danger-fg)" },
  ".cm-diagnostic-warning": { borderLeft: "3px solid var(--warn-fg)" },
  ".cm-lintRange-error": { backgroundImage: "none", textDecoration: "underline wavy var(--danger-fg)" },
  ".cm-lintRange-warning": { backgroundImage: "none", textDecoration: "underline wavy var(--warn-fg)" },
  ".cm-lint-marker-error, .cm-lint-marker-warning": { content: "none" },
  ".cm-button, .cm-textfield": { backgroundImage: "none", backgroundColor: "var(--surface)", border: "1px solid var(--line-strong)", borderRadius: "4px" },
});

export const editorLook = [frame, syntaxHighlighting(colours)];
