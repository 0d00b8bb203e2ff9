"""SUR-7: which tools may have read a file, whose text has to arrive as it is."""

from typing import Any

import pytest

from mcpx.model.offer import Offer
from mcpx.surfaces.files import reads_files


def tool(name: str, *takes: str, schema: Any = None) -> Offer:
    schema = (
        {"type": "object", "properties": {each: {"type": "string"} for each in takes}}
        if schema is None
        else schema
    )
    return Offer("tools", "one", name, name, {"name": name, "inputSchema": schema})


@pytest.mark.parametrize(
    ("name", "takes"),
    [
        ("read_text_file", ["path", "head", "tail"]),
        ("read_multiple_files", ["paths"]),
        ("get_file_contents", ["owner", "repo", "path"]),
        ("view", ["file_path"]),
        ("open", ["fileName"]),
        ("cat", ["absoluteFilePath"]),
        ("load", ["FILE"]),
        ("git_show", ["repo_path", "revision"]),
        ("resource", ["uri"]),
        ("read_list_file", ["path"]),
        ("show", ["target-directory"]),
        ("lookup", ["relpath"]),
        ("读取", ["路径"]),
        ("read_file", ["id"]),
        ("getFile", ["object"]),
        ("读取文件", []),
    ],
)
def test_a_tool_that_takes_a_path_reads_files(name: str, takes: list[str]) -> None:
    """SUR-7: by a word in the name of an argument."""
    assert reads_files(tool(name, *takes), {})


@pytest.mark.parametrize(
    ("name", "takes"),
    [
        ("read_graph", []),
        ("search_nodes", ["query"]),
        ("get_weather", ["city", "units"]),
        ("get_profile", ["profile_id"]),
        ("call_api", ["url", "method"]),
        ("directory_tree", ["path", "excludePatterns"]),
        ("list_directory_with_sizes", ["path", "sortBy"]),
        ("search_files", ["path", "pattern"]),
        ("getFileInfo", ["path"]),
        ("list_files", []),
        ("get_file_info", ["id"]),
    ],
)
def test_a_tool_without_a_path_or_one_that_lists_them_gives_data(
    name: str, takes: list[str]
) -> None:
    """SUR-7: a word is a whole word (`profile` is no file)."""
    assert not reads_files(tool(name, *takes), dict.fromkeys(takes, "x"))


@pytest.mark.parametrize(
    "arguments",
    [
        {"path": "a"},
        {"options": {"files": [1]}},
        {"of": [{"filename": "a"}]},
        {"from": "file:///a"},
        {"x": "FILE:a"},
        {"of": ["file:///a"]},
    ],
)
def test_what_a_call_says_counts_as_well_as_the_schema(arguments: Any) -> None:
    """SUR-7: a schema may say nothing."""
    for schema in ({"type": "object"}, True, None, 5, {"properties": []}):
        assert reads_files(tool("do", schema={} if schema is None else schema), arguments)
        assert not reads_files(
            tool("do", schema={} if schema is None else schema), {"query": "a path"}
        )


def test_endless_arguments_are_looked_at_in_part() -> None:
    """SUR-7: and so are endless names."""
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    assert not reads_files(tool("x" * 100_000), {"a" * 1_000_000: deep, "b": [[[]] * 1000] * 1000})
