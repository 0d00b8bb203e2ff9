"""Chinese words and English synonyms: the files that are shipped, and how they are read."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mcpx.catalog.search.query import Glossary, chinese, in_chinese, parse_synonyms, synonyms
from mcpx.catalog.search.words import STOP_WORDS, is_cjk, stems, words

SAMPLE = Path(__file__).with_name("sample")
OWN_QUERIES = (
    "帮我查一下明天的天气",
    "把文件移动到另一个目录",
    "生成一张柱状图",
    "查询比特币的实时价格",
)


def test_lines_are_words_and_their_names() -> None:
    """FMT-3"""
    glossary = Glossary.parse(
        "# a comment\n查询 搜索: search, look up  # why\n查询: find\n的:\nno colon\n"
    )
    assert glossary.entries == {
        "查询": (("search",), ("look", "up"), ("find",)),
        "搜索": (("search",), ("look", "up")),
        "的": (),
    }


def test_chinese_is_cut_into_the_fewest_words_that_cover_the_most() -> None:
    """FMT-3"""
    glossary = Glossary.parse("临床: a\n临床试验: b\n试验: c\n验地: d\n地点: e\n")
    assert glossary.cut("临床试验地点") == ["临床试验", "地点"]
    assert glossary.cut("看临床啊") == ["看", "临床", "啊"]
    assert glossary.cut("") == []
    assert Glossary({}).cut("临床") == ["临", "床"]


def test_the_glossary_is_large_and_well_formed() -> None:
    """FMT-3: 800 words and more; Chinese left, English right."""
    entries = chinese().entries
    assert sum(1 for names in entries.values() if names) >= 800
    for word, names in entries.items():
        assert any(is_cjk(run) for run in words(word)), word
        assert len(word) <= 6, f"{word}: a word, not a phrase"
        for name in names:
            assert all(
                part.isascii() and part == part.lower() and part.isalnum() for part in name
            ), (word, name)
            assert set(name) - STOP_WORDS, (word, name)
        assert len(names) <= 10, word


def test_the_glossary_holds_no_whole_query() -> None:
    """FMT-3: it is made of words; a query that stood in it would measure nothing."""
    rows = (SAMPLE / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    queries = [*OWN_QUERIES, *(json.loads(row)["query"] for row in rows)]
    assert len(queries) > 20
    assert not {"".join(words(query)) for query in queries} & set(chinese().entries)


def test_no_entry_is_a_phrase_of_stop_words_and_words() -> None:
    """FMT-3: 帮我查天气 would hide 天气."""
    empty = {word for word, names in chinese().entries.items() if not names}
    polite = {"请帮", "帮我", "我想", "我要", "给我", "想要", "需要", "如何", "怎么"}
    assert polite - {"请帮"} <= empty
    for word in set(chinese().entries) - empty:
        assert not any(word.startswith(start) and word != start for start in polite), word


def test_synonyms_look_for_each_other_or_one_way() -> None:
    """FMT-3: words are kept as terms, so that endings do not matter; two words can have names too,
    if neither is a stop word."""
    parsed = parse_synonyms(
        "# why\nerase, deleting, get rid\nlook_up sign_in logins: authentication\n"
    )
    assert parsed == {
        ("eras",): (("delet",), ("get", "rid")),
        ("delet",): (("eras",), ("get", "rid")),
        ("get", "rid"): (("eras",), ("delet",)),
        ("look", "up"): (("authenticat",),),
        ("login",): (("authenticat",),),
    }


def test_the_synonyms_are_many_words_and_few_at_once() -> None:
    """FMT-3: one or two words left, up to three right; nothing is another name of itself."""
    entries = synonyms()
    assert len(entries) > 1_000
    for said, names in entries.items():
        assert 1 <= len(said) <= 3, said
        assert said not in names, said
        assert len(names) <= 24, (said, "drowns what it means")
        assert all(
            1 <= len(name) <= 4 and all(term.isascii() for term in name) for name in names
        ), said


def test_the_synonyms_hold_no_whole_query() -> None:
    """FMT-3: it is made of words; a query that stood in it would measure nothing."""
    rows = (SAMPLE / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    queries = {
        stems(tuple(word.lower() for word in words(json.loads(row)["query"]))) for row in rows
    }
    assert not {query for query in queries if len(query) > 2} & set(synonyms())


def test_english_finds_tools_that_are_described_in_chinese() -> None:
    """FMT-3: the glossary the other way round."""
    assert ("天气",) in in_chinese()[stems(("weather",))]


@pytest.mark.parametrize(
    ("query", "described", "read"),
    [
        ("weather forecast", "weather", False),
        ("weather forecast", "查询天气", True),
        ("天气", "weather", True),
    ],
)
def test_the_chinese_glossary_is_read_for_chinese_only(
    query: str, described: str, read: bool
) -> None:
    """FMT-3: nothing is loaded before it is needed, by a query or by a tool."""
    program = (
        "from mcpx.catalog.search import Document, Index\n"
        "from mcpx.catalog.search.query import chinese\n"
        f"index = Index([Document('weather', 'weather', 'sky', '', {described!r}, ())])\n"
        f"assert index.search({query!r}).total == 1\n"
        "print(chinese.cache_info().currsize)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(int(read))
