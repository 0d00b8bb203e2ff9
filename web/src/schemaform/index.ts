export { check, type Finding as SchemaFinding } from "./check";
export { resolved, type Fields, type Json, type Schema, type SchemaObject } from "./schema";
export { default as SchemaEditor } from "./SchemaEditor.vue";
export { default as SchemaForm } from "./SchemaForm.vue";
export { shapeOf, typeWord } from "./shapes";
export { brief, same, withField, withItem } from "./values";
export { useFindingText } from "./words";
