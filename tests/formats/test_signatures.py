"""Signatures of tools that well-known open servers really offer (filesystem, git, memory,
everything)."""

import json
from pathlib import Path
from typing import Any

import orjson
import pytest

from mcpx.formats.tokens import estimate
from mcpx.formats.typescript import signature, type_text

SERVERS = json.loads(
    (Path(__file__).with_name("samples") / "live_tools.json").read_text(encoding="utf-8")
)
TOOLS: dict[str, Any] = {
    tool["name"]: tool["inputSchema"] for server in SERVERS.values() for tool in server["tools"]
}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("list_allowed_directories", "({})"),
        (
            "read_text_file",
            "({path: string, tail?: number /* If provided, returns only the last N lines of the "
            "file */, "
            "head?: number /* If provided, returns only the first N lines of the file */})",
        ),
        (
            "edit_file",
            "({path: string, edits: {oldText: string /* Text to search for - must match exactly "
            "*/, "
            "newText: string /* Text to replace with */}[], "
            "dryRun?: boolean /* Preview changes using git-style diff format; default: false */})",
        ),
        (
            "list_directory_with_sizes",
            '({path: string, sortBy?: "name" | "size" /* Sort entries by name or size; default: '
            '"name" */})',
        ),
        ("git_add", "({repo_path: string, files: string[] /* not empty */})"),
        (
            "create_entities",
            "({entities: {name: string /* The name of the entity */, entityType: string /* The "
            "type of the entity */, "
            "observations: string[] /* An array of observation contents associated with the "
            "entity */}[]})",
        ),
        (
            "get-annotated-message",
            '({messageType: "error" | "success" | "debug" '
            "/* Type of message to demonstrate different annotation patterns */, "
            "includeImage?: boolean /* Whether to include an example image; default: false */})",
        ),
        (
            "get-resource-links",
            "({count?: number /* Number of resource links to return (1-10); default: 3 */})",
        ),
    ],
)
def test_a_real_tool_reads_like_a_function(name: str, text: str) -> None:
    """FMT-1"""
    assert signature(name, TOOLS[name]) == name + text


def test_without_parameter_docs_only_the_types_are_left() -> None:
    """FMT-1: max_description_len."""
    assert signature("git_log", TOOLS["git_log"], max_description_len=0) == (
        "git_log({repo_path: string, max_count?: number, "
        "start_timestamp?: string | null, end_timestamp?: string | null})"
    )


def test_types_are_much_shorter_than_the_schemas() -> None:
    """FMT-1: about half with parameter docs, 70 % without; counted by estimate, bench/tokens.py
    counts real tokens."""
    raw = sum(estimate(orjson.dumps(schema).decode()) for schema in TOOLS.values())

    assert sum(estimate(type_text(schema)) for schema in TOOLS.values()) < 0.55 * raw
    assert (
        sum(estimate(type_text(schema, max_description_len=0)) for schema in TOOLS.values())
        < 0.3 * raw
    )


def test_a_note_stands_in_the_place_of_a_description() -> None:
    """FMT-1: what only a tool's description says of a parameter."""
    schema = {
        "properties": {
            "a": {"type": "string"},
            "b": {"$ref": "#/$defs/B"},
            "c": {"type": "object", "properties": {"a": {}}},
        },
        "$defs": {"B": {"properties": {"a": {"type": "number"}, "b": {"$ref": "#/$defs/B"}}}},
    }
    told = signature("f", schema, notes={"a": "the */ first.", "x": "nobody"})
    assert told == (
        "f({a?: string /* the * / first */, b?: B, c?: {a?: unknown}})\ntype B = {a?: number, b?: B}"
    )
    assert signature("f", schema, notes={"a": "the first"}, max_description_len=0) == signature(
        "f", schema
    )


def test_a_long_description_is_cut_at_the_end_of_a_word() -> None:
    """FMT-1."""
    told = signature("f", {"properties": {"a": {"type": "string", "description": "word " * 50}}})
    assert told.endswith("word word... */})")
