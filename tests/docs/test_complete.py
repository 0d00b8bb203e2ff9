"""Every option, key, metric, route, variable and code is documented; pages that are made of the
program are fresh."""

import argparse
import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest

from docs.blocks import ROOT
from mcpx.cli import codes
from mcpx.cli.command_table import COMMANDS
from mcpx.cli.parsing import parser_of
from mcpx.config.json_schema import config_schema
from mcpx.front import routes
from mcpx.model import errors
from mcpx.surfaces import SURFACES

DOCS = ROOT / "docs"


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def section(text: str, heading: str) -> str:
    """What stands below a heading, to the next of its kind."""
    return text.partition(f"\n### {heading}\n")[2].partition("\n### ")[0]


def test_the_pages_that_are_made_of_the_program_are_what_it_says_now() -> None:
    """RUN-4: run scripts/references.py after a change of options, keys, routes, metrics, variables
    or clients."""
    check = [sys.executable, "scripts/references.py", "--check"]
    done = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def options_of(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, inner in action.choices.items():
                yield word
                yield from options_of(inner)
        elif action.help != argparse.SUPPRESS and not isinstance(action, argparse._HelpAction):
            yield from action.option_strings


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_a_command_is_in_its_section(command: str) -> None:
    """RUN-4."""
    told = section(page("cli.md"), f"mcpx {command}")
    assert told, f"docs/cli.md has no section of mcpx {command}"
    assert [
        o
        for o in options_of(parser_of(COMMANDS[command]))
        if not re.search(rf"`(?:\w+ … )?{re.escape(o)}[ `]", told)
    ] == []


def keys_of(schema: Any) -> Iterator[str]:
    """Every key that a configuration may have, wherever it stands."""
    if isinstance(schema, dict):
        for name, value in schema.items():
            if name == "properties":
                yield from value
            yield from keys_of(list(value.values()) if name in ("properties", "$defs") else value)
    elif isinstance(schema, list):
        for value in schema:
            yield from keys_of(value)


def test_every_key_of_the_configuration_is_in_its_reference() -> None:
    """CFG-1, CFG-8."""
    told = set(re.findall(r"^\| `([^`]+)`", page("configuration.md"), re.MULTILINE))
    keys = set(keys_of(config_schema())) - {"$schema"}  # for editors
    headings = set(
        re.findall(
            r"`([\w.\[\]]+)`",
            "\n".join(re.findall(r"^## .*", page("configuration.md"), re.MULTILINE)),
        )
    )
    named = told | {part for heading in headings for part in re.split(r"[.\[\]]+", heading)}
    named |= set(
        re.findall(r"`\{(\w+): …\}`", page("configuration.md"))
    )  # a section of one key, told as a type
    assert sorted(keys - named) == []


def metrics() -> set[str]:
    found: set[str] = set()
    for file in (ROOT / "src" / "mcpx" / "telemetry").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and re.fullmatch(
                r"(mcpx|process)_[a-z_]+", str(node.value)
            ):
                found.add(str(node.value))
    return found


@pytest.mark.parametrize("name", ["metrics.md", "observability.md"])
def test_every_metric_is_in_the_page_and_no_other(name: str) -> None:
    """OBS-1."""
    told = set(re.findall(r"^\| `((?:mcpx|process)_\w+)`", page(name), re.MULTILINE))
    assert told == metrics() != set()


def test_every_route_of_the_admin_api_has_a_section_and_no_other() -> None:
    """ADM-2."""
    document = json.loads(
        (ROOT / "src" / "mcpx" / "admin" / "openapi.json").read_text(encoding="utf-8")
    )
    there = {
        f"{method.upper()} {path}"
        for path, methods in document["paths"].items()
        for method in methods
        if method in ("get", "post", "put", "patch", "delete")
    }
    assert set(re.findall(r"^### ([A-Z]+ /\S+)$", page("rest.md"), re.MULTILINE)) == there


@pytest.mark.parametrize("name", ["usage.md", "usage.zh-CN.md"])
def test_every_path_of_the_front_is_in_the_usage(name: str) -> None:
    """PRO-1."""
    modes = [
        routes.ROUTES[f"/mcp/{routes.MODE}"].path.replace(routes.MODE, mode) for mode in SURFACES
    ]
    paths = [path for path in routes.ROUTES if routes.MODE not in path] + [routes.RESOURCE, *modes]
    assert [path for path in paths if f"`{path}`" not in page(name)] == []


def test_every_code_of_an_error_is_in_its_page() -> None:
    """SRC-8, PRO-6."""
    all_codes = {
        value
        for name, value in vars(errors).items()
        if name.isupper() and type(value) is int and value < -32000
    }
    assert [code for code in sorted(all_codes) if f"| {code} |" not in page("errors.md")] == []


@pytest.mark.parametrize("name", ["errors.md", "cli.md"])
def test_every_exit_code_is_in_the_page_and_no_other(name: str) -> None:
    """RUN-4."""
    table = page(name).partition("code |")[2].partition("\n\n")[0]
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)} == set(
        codes.MEANINGS
    )


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    listed = re.findall(r'"([\w./-]+\.md)"', (ROOT / "zensical.toml").read_text(encoding="utf-8"))
    there = {str(path.relative_to(DOCS)) for path in DOCS.glob("*.md")}
    assert sorted(there - set(listed)) == []
    assert [
        name for name in listed if not (DOCS / name).exists() and not (ROOT / name).exists()
    ] == []


def test_every_client_program_has_a_page() -> None:
    """RUN-5."""
    data = tomllib.loads(
        (ROOT / "src" / "mcpx" / "clients" / "programs.toml").read_text(encoding="utf-8")
    )
    assert {client["id"] for client in data["client"]} == {
        p.stem for p in (DOCS / "clients").glob("*.md")
    } - {"README"}
