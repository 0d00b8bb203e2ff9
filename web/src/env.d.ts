declare module "virtual:messages/*" {
  const messages: Record<string, Record<string, unknown>>;
  export default messages;
}

/** What is used of it; the package brings no types. */
declare module "js-yaml" {
  export class Schema {}
  export const CORE_SCHEMA: Schema;
  export class YAMLException extends Error {
    reason: string;
    mark?: { line: number; column: number };
  }
  export function dump(value: unknown, options: { schema: Schema; lineWidth: number; noRefs: boolean; quotingType: "'" | '"' }): string;
  export function load(text: string, options: { schema: Schema }): unknown;
}
