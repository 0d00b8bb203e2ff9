"""Which tools come first, and what is counted."""

import json
from pathlib import Path
from typing import Any

import pytest

from mcpx.catalog.search import Document, Index

SAMPLE = Path(__file__).with_name("sample")


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (SAMPLE / name).read_text(encoding="utf-8").splitlines()]


def tool(
    name: str, description: str = "", service: str = "s", public: str = "", **parameters: str
) -> Document:
    return Document(name, public or name, service, "", description, tuple(parameters.items()))


def found(documents: list[Document], query: str, **options: Any) -> list[str]:
    return [
        documents[hit.position].public for hit in Index(documents).search(query, **options).hits
    ]


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    return [
        Document(
            row["tool"],
            row["tool"],
            row["server"],
            row["server_description"],
            row["description"],
            tuple(
                (name, schema.get("description", ""))
                for name, schema in row["input_schema"]["properties"].items()
            ),
        )
        for row in rows("tools.jsonl")
    ]


@pytest.fixture(scope="module")
def index(documents: list[Document]) -> Index:
    return Index(documents)


@pytest.mark.parametrize("row", rows("queries.jsonl"), ids=lambda row: row["query"])
def test_a_sentence_in_english_or_chinese_finds_its_tools(
    row: dict[str, Any], index: Index, documents: list[Document]
) -> None:
    """FMT-3, SUR-4"""
    hits = [documents[hit.position].name for hit in index.search(row["query"], limit=5).hits]
    assert {wanted["tool"] for wanted in row["relevant"]} <= set(hits)


# Names
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query", ["read_file", "read file", "ReadFile", "READ-FILE", " readfile ", "read.file"]
)
def test_an_exact_name_comes_first_however_it_is_written(query: str) -> None:
    """FMT-3"""
    documents = [
        tool("file_reader", "read file read file read_file readFile read a file, file read"),
        tool("read_file_lines", "read file"),
        tool("read_file"),
    ]
    assert found(documents, query)[0] == "read_file"


def test_name_then_prefix_then_description_then_parameter() -> None:
    """FMT-3: the order of S2."""
    documents = [
        tool("alpha", "Something else.", invoice="which one"),
        tool("beta", "Sends an invoice."),
        tool("invoice_list", "Something else."),
        tool("invoice", "Something else."),
    ]
    assert found(documents, "invoice") == ["invoice", "invoice_list", "beta", "alpha"]


def test_a_display_name_wins_over_a_raw_name() -> None:
    """SUR-4"""
    documents = [tool("search", public="a_search"), tool("lookup", public="search")]
    assert found(documents, "search") == ["search", "a_search"]


@pytest.mark.parametrize(
    "query", ["github.create_issue", "github create issue", "github::create_issue"]
)
def test_a_name_with_its_service_in_front_is_a_name_too(query: str) -> None:
    """FMT-3"""
    documents = [
        tool("create_issue", service="gitlab", public="one"),
        tool("create_issue", service="github", public="two"),
    ]
    assert found(documents, query)[0] == "two"


def test_the_beginning_of_a_name_is_enough() -> None:
    """FMT-3"""
    documents = [
        tool("get_screen", "A screenshot, screenshots."),
        tool("screenshot_page"),
        tool("other"),
    ]
    assert found(documents, "screens")[0] == "screenshot_page"
    assert found(documents, "screenshot pa")[0] == "screenshot_page"


def test_the_rule_for_prefixes_leaves_sentences_alone() -> None:
    """FMT-3: a long query is not the beginning of a name, even if its text is."""
    documents = [
        tool("get_the_weather_of_another_planet"),
        tool("forecast", "Get the weather of a city."),
    ]
    hits = Index(documents).search("get the weather of a city").hits
    assert [hit.position for hit in hits] == [1, 0]
    assert not any(hit.score > 100 for hit in Index(documents).search("get the weather of").hits)


# Words
# --------------------------------------------------------------------------------------------------


def test_a_word_in_the_name_says_more_than_one_in_a_parameter() -> None:
    """FMT-3"""
    documents = [
        tool("one", "Text.", country="The weather there"),
        tool("get_weather", "Text.", country="Where"),
    ]
    assert found(documents, "weather please") == ["get_weather", "one"]


def test_a_rare_word_says_more_than_a_frequent_one() -> None:
    """FMT-3"""
    documents = [*(tool(f"get_{n}", "get it") for n in "abcdefgh"), tool("read_whois", "domain")]
    assert found(documents, "get the whois of it")[0] == "read_whois"


def test_the_service_helps_to_find_its_tools() -> None:
    """FMT-3"""
    documents = [
        Document("get_page", "one", "cooking", "Recipes and meals", "Get it.", ()),
        Document("get_page", "two", "trains", "Timetables of trains", "Get it.", ()),
    ]
    assert found(documents, "timetables of all trains") == ["two"]


def test_a_word_unfinished_at_the_end_finds_its_continuations() -> None:
    """FMT-3"""
    documents = [tool("x", "Makes a transcript."), tool("y", "Makes a drawing.")]
    assert found(documents, "makes transc")[0] == "x"
    assert found(documents, "transc ") == [], "a finished word is taken as it stands"


def test_english_synonyms_find_each_other_but_count_less_than_the_word() -> None:
    """FMT-3"""
    documents = [
        tool("a1", "Remove a folder."),
        tool("a2", "Erase a directory."),
        tool("a3", "Paint a wall."),
    ]
    assert found(documents, "erase the directory") == ["a2", "a1"]


@pytest.mark.parametrize(
    "query", ["wether forcast", "waether forecst", "weathr forecasst", "eather forecas"]
)
def test_slips_do_not_break_it(query: str) -> None:
    """FMT-3"""
    documents = [tool("a1", "The forecast of the weather."), tool("a2", "The price of a stock.")]
    assert found(documents, query) == ["a1"]


def test_a_word_that_occurs_is_never_taken_for_a_slip() -> None:
    """FMT-3"""
    documents = [tool("a1", "A chart."), tool("a2", "A chess game.")]
    documents.append(tool("a3", "A chant."))
    assert found(documents, "one chart here now") == ["a1"]


# Chinese
# --------------------------------------------------------------------------------------------------


def test_a_chinese_query_finds_english_and_chinese_tools() -> None:
    """FMT-3"""
    documents = [
        tool("stock_quote", "Price of a stock."),
        tool("zh", "查询股票的最新价格"),
        tool("other", "Paint a wall."),
    ]
    assert set(found(documents, "查一下股票价格")) == {"stock_quote", "zh"}


def test_a_chinese_word_with_many_names_counts_once() -> None:
    """FMT-3: a tool that uses all the names of one word does not beat one that has both words."""
    documents = [
        tool("a1", "search find query lookup"),
        tool("a2", "find weather"),
    ]
    assert found(documents, "搜索天气")[0] == "a2"


def test_words_of_both_languages_work_together() -> None:
    """FMT-3"""
    documents = [tool("a1", "Convert a PDF to text."), tool("a2", "Convert a video to text.")]
    assert found(documents, "把PDF转换成文本")[0] == "a1"


# Counting
# --------------------------------------------------------------------------------------------------


def test_total_counts_all_and_pages_follow_each_other() -> None:
    """SUR-4"""
    documents = [tool(f"t{n}", "weather " * (1 + n % 7)) for n in range(50)] + [tool("x", "other")]
    index = Index(documents)
    everything = index.search("weather", limit=100)
    assert everything.total == len(everything.hits) == 50
    pages = [index.search("weather", limit=20, offset=offset) for offset in (0, 20, 40, 60)]
    assert [len(page.hits) for page in pages] == [20, 20, 10, 0]
    assert {page.total for page in pages} == {50}
    assert tuple(hit for page in pages for hit in page.hits) == everything.hits


def test_equal_scores_come_in_the_order_given() -> None:
    """FMT-3"""
    documents = [tool(f"t{n}", "weather") for n in (5, 3, 9, 1)]
    assert [hit.position for hit in Index(documents).search("the weather today now").hits] == [
        0,
        1,
        2,
        3,
    ]


@pytest.mark.parametrize("blank", ["", "   ", "\n\t"])
def test_a_blank_query_gives_everything_in_order(blank: str) -> None:
    """SUR-4"""
    documents = [tool(f"t{n}", service="ab"[n % 2]) for n in range(30)]
    index = Index(documents)
    assert [hit.position for hit in index.search(blank).hits] == list(range(20))
    assert index.search(blank).total == 30
    assert [hit.position for hit in index.search(blank, service="b", limit=3).hits] == [1, 3, 5]
    assert index.search(blank, service="b").total == 15


def test_a_service_is_asked_for_by_its_exact_name() -> None:
    """SUR-4"""
    documents = [tool("t1", "weather", service="Sky"), tool("t2", "weather", service="sky")]
    index = Index(documents)
    assert [hit.position for hit in index.search("weather", service="sky").hits] == [1]
    assert index.search("weather", service="nobody").total == 0


def test_what_matches_nothing_is_not_found() -> None:
    """SUR-4"""
    index = Index([tool("t1", "weather")])
    for query in ("zzzzqqq", "???", "的", "the", "🙂"):
        assert index.search(query).total == 0
    assert Index([]).search("weather").total == 0
    assert Index([]).search("").total == 0
