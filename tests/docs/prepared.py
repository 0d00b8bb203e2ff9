"""What a page takes for granted: the files its reader has before the first command."""

from pathlib import Path

from docs.blocks import ROOT, Block, Command
from docs.session import Session

_NAMES = ("GITHUB_TOKEN", "CI_TOKEN", "MCPX_PROMETHEUS_TOKEN", "REMOTE_TOKEN")
VARIABLES = dict.fromkeys(_NAMES, "a-value-that-is-long-enough-for-a-token")
"""Set for pages whose configurations name them."""

GUARDED = """\
mcp_servers:
  - name: memory
    connection: {type: stdio, command: npx, args: ["-y", "@modelcontextprotocol/server-memory"]}
  - name: files
    connection: {type: stdio, command: npx, args: ["-y", "@modelcontextprotocol/server-filesystem", "."]}
profiles:
  - {name: readers, tools: ["*", "!*delete*"]}
global: {audit: {}}
"""

PETS = """\
openapi: 3.1.0
info: {title: Pets, version: "1"}
servers: [{url: "https://pets.example.com/v1"}]
paths:
  /pets:
    get:
      operationId: listPets
      summary: Lists pets
      parameters: [{name: limit, in: query, schema: {type: integer}}]
      responses: {"200": {description: ok}}
    post:
      operationId: addPet
      requestBody: {content: {application/json: {schema: {type: object, properties: {name: {type: string}}}}}}
      responses: {"201": {description: made}}
"""


def beside(folder: Path) -> None:
    """What configurations refer to in their own folder."""
    (folder / "scripts").mkdir(parents=True)
    script = (ROOT / "examples" / "scripts" / "word_count.py").read_text(encoding="utf-8")
    (folder / "scripts" / "word_count.py").write_text(script, encoding="utf-8")


def session(page: str, folder: Path) -> Session:
    made = named("empty" if page in BEGINS_EMPTY else PREPARED.get(page, "guarded"), folder)
    if page in RUNNING:
        made.serve(Block(page, 0, "console", ""), Command("mcpx mcpx.yaml --admin", ()))
    return made


PREPARED = {"docs/admin.md": "two"}
RUNNING = {"docs/rest.md"}
"""Pages whose reader has a gateway running."""
_SERVERS = "\n".join(
    f"  - {{name: {name}, connection: {{type: http, url: 'https://{name}.example.com/mcp'}}}}"
    for name in ("github", "shell", "billing", "docs-one")
)
CONTEXT = {
    "profiles": "profiles: [{name: readers}, {name: team}]\n",
    "servers": f"mcp_servers:\n{_SERVERS}\nserver: {{auth: {{type: bearer}}}}\n",
    "everything": f"mcp_servers:\n{_SERVERS}\nprofiles: [{{name: readers}}, {{name: team}}]\n",
}
"""Of which configuration a block is a part of."""


BEGINS_EMPTY = {
    "README.md",
    "README.zh-CN.md",
    "docs/start.md",
    "docs/team.md",
    "docs/recipes.md",
    "docs/index.md",
}
"""Pages that begin at the beginning: they write what they use."""


def named(name: str, folder: Path) -> Session:
    made = Session(folder)
    beside(made.folder)
    made.write("petstore.yaml", PETS)
    if name == "guarded":
        made.write("mcpx.yaml", GUARDED)
    elif name == "two":
        made.write(
            "mcpx.yaml",
            GUARDED.replace("name: files", "name: remote").replace("name: memory", "name: files"),
        )
    else:
        assert name == "empty", name
    return made


def file_of(block: Block) -> str | None:
    """Where a reader puts it: a page that begins at the beginning means its servers to go into
    mcpx.yaml."""
    if (name := block.wishes.get("file")) or block.page not in BEGINS_EMPTY:
        return name
    return "mcpx.yaml" if block.language == "yaml" and "mcp_servers:" in block.text else None
