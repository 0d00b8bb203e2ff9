/** Which entry of a YAML file a line belongs to, for the heads of a diff: "mcp_servers › github". */
export function sectionOf(text: string): (line: number) => string | null {
  const heads: (string | null)[] = [];
  let top: string | null = null;
  let name: string | null = null;
  let indent: number | null = null;
  for (const line of text.split("\n")) {
    const begins = /^([A-Za-z_]\w*):/.exec(line);
    if (begins) [top, name, indent] = [begins[1]!, null, null];
    const item = /^(\s*)-\s+(?:name:\s*["']?([^"'#\s]+))?/.exec(line);
    if (item && top) {
      indent ??= item[1]!.length;
      if (item[1]!.length === indent) name = item[2] ?? null;
    }
    heads.push(top && name ? `${top} › ${name}` : top);
  }
  return (line) => heads[line - 1] ?? null;
}
