/** Screens whose texts come with the page; those of all others come together, with the first of them. */
export const FIRST: readonly string[] = ["overview", "login"];
