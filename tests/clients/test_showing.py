"""What is shown of a change has no secret of anybody in it, and all of our own entry."""

from pathlib import Path

import pytest

from mcpx.clients.catalogue import client
from mcpx.clients.changes import to_connect
from mcpx.clients.entry import PLACEHOLDER, Target
from mcpx.clients.showing import difference

SECRET = "s3cr3t-value"
TARGET = Target("http://127.0.0.1:8000/mcp", ["/opt/mcpx", "c.yaml"], True)


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "cursor",
            f'{{"mcpServers": {{"a": {{"env": {{"K": "{SECRET}"}}, "args": ["--key", '
            f'"{SECRET}"]}}}}}}',
        ),
        (
            "cursor",
            f'{{\n  "mcpServers": {{\n    "a": {{\n      "args": [\n        "{SECRET}"\n      '
            f"]}}\n  }}\n}}\n",
        ),
        (
            "cursor",
            f'{{\n  "mcpServers": {{\n    "a": {{"url": "https://{SECRET}@x"}} // {SECRET}\n  '
            f"}}\n}}\n",
        ),
        (
            "cursor",
            f'{{"mcpServers": {{"mcpx":\n{{"url": "x",\n "headers": {{"Authorization": "Bearer '
            f'{SECRET}"}}}}}}}}',
        ),
        (
            "codex",
            f'[mcp_servers.a]\nargs = ["{SECRET}"]\nenv = {{ K = "{SECRET}" }}\nkey = '
            f"'{SECRET}' # {SECRET}\n",
        ),
        (
            "codex",
            f'[mcp_servers.mcpx]\nurl = "x"\nhttp_headers = {{ Authorization = "Bearer {SECRET}" '
            f"}}\n",
        ),
        (
            "goose",
            f"extensions:\n  a:\n    envs: {{K: {SECRET}}}\n    args: [--key, {SECRET}]\n    key: "
            f"{SECRET}\n",
        ),
        ("goose", f"extensions:\n  a:\n    args:\n      - --key\n      - {SECRET}\n"),
        ("goose", f"extensions:\n  a:\n    env: |\n      {SECRET}\n# {SECRET}\n"),
        ("goose", f"extensions:\n  a:\n    env: |\n      {SECRET}==\n"),  # as keys in base64 end
        ("codex", f'[mcp_servers.a]\nkey = """\n{SECRET}=\n"""\n'),
    ],
)
def test_no_value_of_others_is_shown(name: str, text: str, transport: str, tmp_path: Path) -> None:
    known = client(name)
    assert known is not None
    place = next(p for p in known.places("linux", {}, tmp_path, tmp_path) if p.scope == "user")
    file = Path(place.path)
    file.parent.mkdir(parents=True)
    file.write_text(text)
    change = to_connect(known, place, file, "http" if transport == "http" else "stdio", TARGET)
    told = difference(change)
    assert SECRET in text and SECRET not in told
    added = [
        line[1:]
        for line in told.splitlines()
        if line.startswith("+") and not line.startswith("+++")
    ]
    if text.count("\n") > 1:
        wanted = TARGET.url if transport == "http" else TARGET.command[0]
        assert wanted and any(wanted in line for line in added)
        assert transport == "http" or any(TARGET.command[1] in line for line in added)
        if name == "goose" and transport == "http":
            assert any(PLACEHOLDER in line for line in added)
