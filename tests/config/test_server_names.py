"""RUN-4, ADM-5: the name of an added server tells what it is, for the ways in which popular servers
are started."""

import pytest

from mcpx.config.pasted import import_text
from mcpx.config.recognising import read
from mcpx.config.server_names import name_of_command, name_of_registry_entry

POPULAR = {
    # npm packages
    "npx -y @modelcontextprotocol/server-filesystem /tmp": "filesystem",
    "npx -y @modelcontextprotocol/server-sequential-thinking": "sequential-thinking",
    "npx @playwright/mcp@latest": "playwright",
    "npx -y @playwright/mcp@latest --headless --browser chromium": "playwright",
    "npx @sentry/mcp-server@latest --access-token=x": "sentry",
    "npx -y @upstash/context7-mcp@1.0.14": "context7",
    "npx -y @supabase/mcp-server-supabase@latest --read-only": "supabase",
    "npx -y @notionhq/notion-mcp-server": "notion",
    "npx -y @stripe/mcp --tools=all": "stripe",
    "npx -y @azure/mcp@latest server start": "azure",
    "npx @eslint/mcp@latest": "eslint",
    "npx -y @heroku/mcp-server": "heroku",
    "npx -y @shopify/dev-mcp@latest": "shopify",
    "npx -y @angular/cli mcp": "angular",
    "npx -y @brave/brave-search-mcp-server --transport stdio": "brave-search",
    "npx -y @cloudflare/mcp-server-cloudflare": "cloudflare",
    "npx -y chrome-devtools-mcp@latest": "chrome-devtools",
    "npx -y mcp-server-kubernetes": "kubernetes",
    "npx -y mongodb-mcp-server --readOnly": "mongodb",
    "npx -y firecrawl-mcp": "firecrawl",
    "npx -y figma-developer-mcp --stdio": "figma-developer",
    "npx n8n-mcp": "n8n",
    "npx -y shadcn@latest mcp": "shadcn",
    "npx --package=@scope/billing-server mcp": "billing",
    "npx -y -p @scope/billing-server@2 mcp-server": "billing",
    "npx -y github:acme/weather-mcp": "weather",
    "pnpm dlx @acme/mcp@latest": "acme",
    "bunx --bun @acme/mail-mcp": "mail",
    "deno run -A npm:@acme/mcp": "acme",
    r"cmd /c npx -y @playwright/mcp@latest": "playwright",
    "bash -lc 'npx -y tavily-mcp@0.2'": "tavily",
    "npx -y @smithery/cli@latest run @acme/maps-mcp --key x": "maps",
    # PyPI packages
    "uvx mcp-server-time@2026": "time",
    "uvx mcp-server-git --repository /srv/app": "git",
    "uvx mcp-atlassian": "atlassian",
    "uvx duckduckgo-mcp-server": "duckduckgo",
    "uvx basic-memory mcp": "basic-memory",
    "uvx awslabs.aws-documentation-mcp-server@latest": "awslabs-aws-documentation",
    "uvx 'markitdown-mcp[all]==0.0.1'": "markitdown",
    "uvx --from git+https://github.com/oraios/serena serena start-mcp-server": "serena",
    "uvx --from git+https://github.com/acme/weather-mcp.git@v2 mcp-server": "weather",
    "uvx --from git+https://github.com/acme/repo#subdirectory=src/time-mcp server": "time",
    "uvx git+https://github.com/acme/mcp": "acme",
    "uvx -p 3.12 --with requests mcp-server-fetch": "fetch",
    "pipx run --spec mcp-server-sqlite==1.0 mcp-server-sqlite": "sqlite",
    "uv tool run arxiv-mcp-server": "arxiv",
    "uv --directory /home/me/weather run server.py": "weather",
    "uv run --with mcp[cli] mcp run /home/me/stocks/server.py": "stocks",
    "python -m mcp_server_git": "git",
    # Images
    "docker run -i --rm mcp/postgres postgresql://host/db": "postgres",
    "docker run -i --rm -e GITHUB_TOKEN ghcr.io/github/github-mcp-server:latest": "github",
    "docker run --rm -i --name x -v /a:/b hashicorp/terraform-mcp-server:0.2": "terraform",
    "docker run -i --init mcr.microsoft.com/playwright/mcp": "playwright",
    f"podman run -i localhost:5000/mcp/fetch@sha256:{'0' * 64}": "fetch",
    "docker mcp gateway run": "docker",
    # Files and other programs
    "node /home/me/weather-server/dist/index.js": "weather",
    r"node 'C:\Users\me\notes\build\main.js'": "notes",
    "go run github.com/acme/loki-mcp/cmd/server@latest": "loki",
    "dnx NuGet.Mcp.Server@1.0 --yes": "nuget",
    "/usr/local/bin/github-mcp-server stdio": "github",
    # URLs
    "npx mcp-remote https://mcp.linear.app/sse": "linear",
    "npx -y mcp-remote@latest https://mcp.atlassian.com/v1/sse --header 'A: b'": "atlassian",
    "npx -y @geelen/mcp-remote https://mcp.asana.com/sse": "asana",
    "uvx mcp-proxy --transport streamablehttp https://mcp.vercel.com": "vercel",
    "npx -y supergateway --sse https://mcp.squareup.com/sse": "squareup",
    "https://mcp.linear.app/sse": "linear",
    "https://api.githubcopilot.com/mcp/": "github",
    "https://mcp.notion.com/mcp": "notion",
    "https://docs.mcp.cloudflare.com/sse": "cloudflare",
    "https://learn.microsoft.com/api/mcp": "microsoft",
    "https://huggingface.co/mcp": "huggingface",
    "https://mcp.example.co.uk/mcp": "example",
    "https://weather-mcp.acme.workers.dev/sse": "weather",
    "https://server.smithery.ai/@acme/maps-mcp/mcp": "maps",
    "http://localhost:8000/mail/mcp": "mail",
    "http://localhost:8000/mcp": "localhost",
    "https://mcp.zapier.com/api/mcp/s/ODk2Zm/mcp": "zapier",
}


@pytest.mark.parametrize(("line", "name"), POPULAR.items())
def test_name_of_a_popular_server(line: str, name: str) -> None:
    (server,) = import_text(line).servers
    assert server["name"] == name


@pytest.mark.parametrize(
    ("entry", "name"),
    {
        "io.github.owner/weather-mcp": "weather",
        "com.stripe/mcp": "stripe",
        "io.github.owner/mcp-server": "owner",
        "ai.exa/exa": "exa",
        "com.example.api/mcp": "example",
    }.items(),
)
def test_name_of_a_registry_entry(entry: str, name: str) -> None:
    assert name_of_registry_entry(entry) == name


def test_equal_names_get_a_number() -> None:
    found = read(
        '[{"command": "npx", "args": ["@acme/mcp"]}, {"command": "npx", "args": '
        '["@acme/mcp-server"]}]'
    )
    assert [entry["name"] for _, entry in found.entries] == ["acme", "acme-2"]


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["npx", "-y", "mcp-remote"], "mcp-remote"),
        (["npx"], "npx"),
        (["./server.py"], "server"),
        (["python3", "-c", "import server; server.main()"], "python3"),
        (["node", "-e", "require('acme')"], "node"),
        (["docker", "run"], "docker"),
        (["mcpx"], "mcpx-2"),
        (["npx", "-y", "@/@"], "server"),
    ],
)
def test_a_command_without_a_telling_word_has_a_name(words: list[str], name: str) -> None:
    assert name_of_command(words) == name


def test_a_name_contains_no_key_of_a_path() -> None:
    (server,) = import_text("http://localhost:3000/s/a8Fk29xLQ0/mcp").servers
    assert server["name"] == "localhost"
