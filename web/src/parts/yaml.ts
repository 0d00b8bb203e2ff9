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
  /** Lists of plain values stand in one line, as people write arguments. */
  write: (value: unknown) => string;
  /** Throws a `YamlMistake` with its place, counted from 1. */
  read: (text: string) => unknown;
}

const MOST_ALIASES = 100;
const ONE_LINE = 100;
let loading: Promise<Yaml> | null = null;

export function loadYaml(): Promise<Yaml> {
  loading ??= import("yaml").then(({ Document, isScalar, parseDocument, visit }) => ({
    write: (value) => {
      const made = new Document(value, { aliasDuplicateObjects: false });
      visit(made, {
        Seq: (_key, list) => {
          list.flow = list.items.every((item) => isScalar(item)) && JSON.stringify(list).length <= ONE_LINE;
        },
      });
      return made.toString({ lineWidth: 0, flowCollectionPadding: false });
    },
    read: (text) => {
      const made = parseDocument(text, { schema: "core", prettyErrors: true });
      const first = made.errors[0];
      if (first) throw new YamlMistake(first.message.split("\n")[0]!, first.linePos?.[0].line ?? 1, first.linePos?.[0].col ?? 1);
      try {
        return made.toJS({ maxAliasCount: MOST_ALIASES });
      } catch (fault) {
        throw new YamlMistake(fault instanceof Error ? fault.message : String(fault), 1, 1);
      }
    },
  }));
  return loading;
}
