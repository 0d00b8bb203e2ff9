/** The same call for a terminal and for a program. */
import { base } from "@/api";
import type { Fields } from "@/schemaform";

const quoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;

export const asCurl = (tool: string, given: Fields): string =>
  [
    `curl -sS ${quoted(`${base}/api/tools/${encodeURIComponent(tool)}/call`)}`,
    `-H "Authorization: Bearer $MCPX_ADMIN_TOKEN"`,
    `-H 'Content-Type: application/json'`,
    `-d ${quoted(JSON.stringify({ arguments: given }))}`,
  ].join(" \\\n  ");

export const asRpc = (tool: string, given: Fields): string =>
  JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: tool, arguments: given } }, null, 2);
