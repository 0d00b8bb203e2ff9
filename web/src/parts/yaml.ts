/**
 * YAML in the browser, loaded when it is first needed: `const yaml = await loadYaml()`. Values are plain JSON; comments
 * and order of a file are the gateway's to keep.
 */
export class YamlMistake extends Error {
  override readonly name = "YamlMistake";

  constructor(
    message: string,
    readonly line: number,
    readonly column: number,
  ) {
    super(message);
  }
}

export interface Yaml {
  write: (value: unknown) => string;
  /** Throws a `YamlMistake` with its place, counted from 1. */
  read: (text: string) => unknown;
}

let loading: Promise<Yaml> | null = null;

export function loadYaml(): Promise<Yaml> {
  loading ??= import("js-yaml").then(({ CORE_SCHEMA, YAMLException, dump, load }) => ({
    write: (value) => dump(value, { schema: CORE_SCHEMA, lineWidth: -1, noRefs: true, quotingType: '"' }),
    read: (text) => {
      try {
        return load(text, { schema: CORE_SCHEMA });
      } catch (fault) {
        if (!(fault instanceof YAMLException)) throw fault;
        throw new YamlMistake(fault.reason, (fault.mark?.line ?? 0) + 1, (fault.mark?.column ?? 0) + 1);
      }
    },
  }));
  return loading;
}
