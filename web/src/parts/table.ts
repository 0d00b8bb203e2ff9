export interface Column<Row> {
  key: string;
  /** The head; empty for columns of controls, which then need `say`. */
  label: string;
  /** Read aloud in place of an empty label. */
  say?: string;
  /** Numbers stand right. */
  right?: boolean;
  width?: string;
  /** Gives the value to sort by; without it the column cannot be sorted. */
  sort?: (row: Row) => string | number | null | undefined;
  /** Dropped when the table gets narrow: "docked" beside a drawer, "narrow" under 1024 px, "both". */
  drop?: "docked" | "narrow" | "both";
  cell?: string;
}

export interface Sorting {
  key: string;
  down: boolean;
}
