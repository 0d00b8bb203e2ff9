import type { components } from "@/api";

export type Program = components["schemas"]["ClientProgram"];
type Client = components["schemas"]["ClientRow"];

const plain = (name: string) => name.toLowerCase().replace(/[^a-z0-9]/g, "");

/** Whether a client that connected is this program: clients name themselves "claude-code", "Visual Studio Code", … */
export function isThis(program: Program, client: Client): boolean {
  const told = plain(client.name);
  return told === plain(program.id) || told === plain(program.name) || (program.id === "vscode" && told.startsWith("visualstudiocode"));
}

/** The address of the gateway through a profile: `/mcp` becomes `/p/<profile>/mcp`. */
export function throughProfile(text: string, profile: string): string {
  return profile ? text.replace(/(https?:\/\/[^\s"'/]+)\/mcp\b/g, `$1/p/${encodeURIComponent(profile)}/mcp`) : text;
}
