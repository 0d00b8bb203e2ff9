"""Several wishes in one query, tools that nobody asked for, and whether anything fits."""

import time

import pytest

from mcpx.catalog.entries import document_of
from mcpx.catalog.search import Document, Index
from mcpx.catalog.search.query import MOST_WISHES, is_question, wishes
from mcpx.model.offer import Offer


def tool(name: str, description: str = "", service: str = "s", **hints: bool) -> Document:
    return Document(name, name, service, "", description, (), **hints)


GRAPH = [
    tool("create_entities", "Create multiple new entities in the knowledge graph", "graph"),
    tool(
        "create_relations",
        "Create multiple new relations between entities in the knowledge graph",
        "graph",
    ),
    tool(
        "add_observations",
        "Add new observations to existing entities in the knowledge graph",
        "graph",
    ),
    tool(
        "delete_entities",
        "Delete multiple entities and their relations from the graph",
        "graph",
        destructive=True,
    ),
    tool(
        "delete_observations",
        "Delete observations from entities in the graph",
        "graph",
        destructive=True,
    ),
    tool(
        "delete_relations",
        "Delete multiple relations from the knowledge graph",
        "graph",
        destructive=True,
    ),
    tool("read_graph", "Read the entire knowledge graph", "graph", read_only=True),
    tool(
        "search_nodes",
        "Search for nodes in the knowledge graph based on a query",
        "graph",
        read_only=True,
    ),
    tool(
        "open_nodes",
        "Open specific nodes in the knowledge graph by their names",
        "graph",
        read_only=True,
    ),
]
FILES = [
    tool(
        "read_file",
        "Read a file as text. DEPRECATED: use read_text_file.",
        "fs",
        read_only=True,
        deprecated=True,
    ),
    tool("read_text_file", "Read the complete contents of a file as text", "fs", read_only=True),
    tool("write_file", "Create a new file or overwrite an existing file", "fs", destructive=True),
    tool("edit_file", "Make line-based edits to a text file", "fs", destructive=True),
    tool("list_directory", "Get a listing of files and directories", "fs", read_only=True),
]
GIT = [
    tool("git_status", "Shows the working tree status", "git", read_only=True),
    tool("git_diff", "Shows differences between branches or commits", "git", read_only=True),
    tool(
        "git_diff_unstaged",
        "Shows changes in the working directory that are not yet staged",
        "git",
        read_only=True,
    ),
    tool("git_commit", "Records changes to the repository", "git"),
    tool("git_add", "Adds file contents to the staging area", "git"),
    tool("git_reset", "Unstages all staged changes", "git", destructive=True),
    tool("git_log", "Shows the commit logs", "git", read_only=True),
]
EVERYDAY = [*GRAPH, *FILES, *GIT]


@pytest.fixture(scope="module")
def index() -> Index:
    return Index(EVERYDAY)


def found(index: Index, query: str, limit: int = 20) -> list[str]:
    return [EVERYDAY[hit.position].name for hit in index.search(query, limit=limit).hits]


# Several wishes
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "parts"),
    [
        ("create entities, relations", ["create entities", "relations"]),
        (
            "open the page and then click; finally, a screenshot",
            ["open the page", "click", "a screenshot"],
        ),
        ("first line\nsecond line.\nv1.2 stays", ["first line", "second line", "v1.2 stays"]),
        ("查天气、规划路线，然后截图", ["查天气", "规划路线", "截图"]),
        ("android branding", ["android branding"]),
        ("", [""]),
    ],
)
def test_a_query_is_cut_into_its_wishes(query: str, parts: list[str]) -> None:
    """FMT-3"""
    assert wishes(query) == parts


def test_a_long_story_is_one_wish_and_any_text_is_cut_quickly() -> None:
    """FMT-3"""
    story = ", ".join(f"and then part {number}" for number in range(MOST_WISHES + 1))
    assert wishes(story) == [story]
    began = time.process_time()
    for hostile in (", and " * 400, "and" * 700, "." * 2_000, "\n " * 1_000, "然" * 2_000):
        assert len(wishes(hostile)) <= MOST_WISHES
        is_question(hostile)
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        (
            "create entities, relations, search nodes",
            {"create_entities", "create_relations", "search_nodes"},
        ),
        ("git add, commit, show history", {"git_add", "git_commit", "git_log"}),
        ("read the text file and list the directory", {"read_text_file", "list_directory"}),
        ("delete entities; search nodes", {"delete_entities", "search_nodes"}),
    ],
)
def test_each_wish_of_a_query_is_served_first(index: Index, query: str, wanted: set[str]) -> None:
    """FMT-3"""
    assert set(found(index, query)[: len(wanted)]) == wanted


def test_wishes_are_served_within_the_service_that_was_asked_for(index: Index) -> None:
    """SUR-4"""
    hits = index.search("read the file, search nodes", service="graph").hits
    assert EVERYDAY[hits[0].position].name == "search_nodes"
    assert {EVERYDAY[hit.position].service for hit in hits} == {"graph"}


def test_pages_of_several_wishes_follow_each_other(index: Index) -> None:
    """SUR-4"""
    query = "create entities, list directory, git status"
    everything = index.search(query, limit=100).hits
    assert everything == tuple(
        hit for at in range(0, 40, 4) for hit in index.search(query, limit=4, offset=at).hits
    )


# What nobody asked for
# -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query", ["entities in the graph", "relations", "observations about a person"]
)
def test_what_destroys_comes_after_the_plain_match(index: Index, query: str) -> None:
    """FMT-3"""
    names = found(index, query)
    plain = [name for name in names if not name.startswith("delete")]
    assert not names[0].startswith("delete")
    assert names.index(plain[0]) < min(
        at for at, name in enumerate(names) if name.startswith("delete")
    )


@pytest.mark.parametrize(
    "query",
    ["delete entities", "remove entities", "erase the entities", "forget the entities", "删除实体"],
)
def test_what_destroys_comes_first_when_it_is_asked_for(index: Index, query: str) -> None:
    """FMT-3: also in other words."""
    assert found(index, query)[0] == "delete_entities"


def test_a_question_finds_what_tells_before_what_changes(index: Index) -> None:
    """FMT-3"""
    names = found(index, "what changed in my repo")
    telling = {"git_status", "git_diff", "git_diff_unstaged", "git_log"}
    assert names[0] in telling
    assert "git_reset" not in names[:3]
    assert found(index, "how do I commit changes to the repository")[0] == "git_commit", (
        "unless that is the question"
    )


def test_a_deprecated_tool_comes_first_for_its_name_only(index: Index) -> None:
    """FMT-3"""
    assert found(index, "read_file")[0] == "read_file"
    assert found(index, "read file")[0] == "read_text_file"
    assert found(index, "read the contents of a file as text")[0] == "read_text_file"


def test_hints_reach_the_index() -> None:
    """FMT-3: by annotations, and by the description for what is deprecated."""
    definition = {
        "name": "x",
        "description": "DEPRECATED: use y.",
        "annotations": {"destructiveHint": True, "readOnlyHint": False},
    }
    document = document_of(
        Offer(server="s", kind="tools", name="x", public="x", definition=definition), ""
    )
    assert (document.read_only, document.destructive, document.deprecated) == (False, True, True)


# Other words
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", ["store a fact about a person", "remember that Bob likes tea"])
def test_what_is_to_be_remembered_goes_to_the_knowledge_graph(index: Index, query: str) -> None:
    """FMT-3"""
    assert set(found(index, query)[:2]) & {"create_entities", "add_observations"}
    assert "edit_file" not in found(index, query)[:3]
    assert index.search(query).strong > 0


def test_words_that_are_written_in_one_or_apart_are_the_same() -> None:
    """FMT-3"""
    documents = [
        tool("generate_boxplot", "A chart."),
        tool("box_office", "Films."),
        tool("story_plot", "Books."),
    ]
    assert Index(documents).search("box plot").hits[0].position == 0
    documents = [tool("time_zone", "Where."), tool("other", "What.")]
    assert Index(documents).search("timezone").hits[0].position == 0


def test_english_words_find_tools_that_are_described_in_chinese() -> None:
    """FMT-3"""
    documents = [
        tool("t1", "获取苹果公司的新闻"),
        tool("t2", "查询火车票"),
        tool("t3", "Paint a wall."),
    ]
    assert Index(documents).search("train tickets").hits[0].position == 1
    assert Index(documents).search("news").hits[0].position == 0


# Whether anything fits
# -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        "send email",
        "weather in Paris",
        "book a flight",
        "turn on the lights",
        "发邮件",
        "play music",
    ],
)
def test_it_is_said_when_nothing_fits(index: Index, query: str) -> None:
    """SUR-4: whatever shares a word with the query is still told."""
    assert index.search(query).strong == 0


@pytest.mark.parametrize(
    "query",
    ["git status", "search my knowledge graph", "write a file", "commit", "read_file", "列出目录"],
)
def test_what_fits_is_counted(index: Index, query: str) -> None:
    """SUR-4"""
    hits = index.search(query)
    assert 1 <= hits.strong <= len(hits.hits)


def test_strong_hits_are_the_first_of_a_page_and_end_where_relevance_drops(index: Index) -> None:
    """SUR-4"""
    everything = index.search("delete entities", limit=100)
    assert 1 <= everything.strong < len(everything.hits)
    later = index.search("delete entities", limit=100, offset=everything.strong)
    assert later.hits and later.strong == 0


def test_with_a_service_the_best_of_that_service_count(index: Index) -> None:
    """SUR-4: they are measured by what the service has."""
    assert index.search("read the knowledge graph", service="fs").strong <= 2
    assert index.search("list the directory", service="fs").strong >= 1
    assert index.search("", service="fs", limit=3).strong == 3


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("查询天气", "op1"),
        ("天气", "op1"),
        ("规划路线", "op2"),
        ("发邮件", "op3"),
        ("今天天气怎么样", "op1"),
    ],
)
def test_what_a_tool_says_in_chinese_fits_whoever_asks_in_the_same_words(
    query: str, first: str
) -> None:
    """FMT-3: also where no tool has a word for it in English."""
    said = {
        "op1": "查询天气",
        "op2": "规划路线",
        "op3": "发送邮件",
        "op4": "翻译文本",
        "op5": "读取文件",
    }
    documents = [Document(name, name, "s", "", about, ()) for name, about in said.items()]
    found = Index(documents).search(query)
    assert found.strong >= 1 and documents[found.hits[0].position].name == first
    assert Index(documents).search("股票价格").strong == 0


@pytest.mark.parametrize(
    ("query", "first"),
    [("current time", "time"), ("sum of 2 and 3", "calculate"), ("echo it", "echo")],
)
def test_where_there_are_few_tools_a_name_that_was_said_fits(query: str, first: str) -> None:
    """FMT-3: how rare a word is says little among three tools."""
    said = {
        "echo": "Say the text back",
        "time": "What time it is",
        "calculate": "Work out an arithmetic expression",
    }
    documents = [Document(name, name, "demo", "", about, ()) for name, about in said.items()]
    found = Index(documents).search(query)
    assert found.strong >= 1 and documents[found.hits[0].position].name == first
    assert Index(documents).search("send an email").strong == 0
