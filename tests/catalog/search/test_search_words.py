"""What text is cut into before it is compared."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcpx.catalog.search.words import LONGEST_WORD, grams, is_cjk, plain, stem, terms, words

calmly = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def cut(text: str) -> list[str]:
    return [term for word in words(text) for term in terms(word)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("read_file", {"read", "fil"}),
        ("read-file", {"read", "fil"}),
        ("ReadFile", {"read", "fil", "readfil"}),
        ("HTTPServer", {"http", "serv", "httpserv"}),
        ("getHTTPServerURL", {"get", "http", "serv", "url", "gethttpserverurl"}),
        ("base64", {"base64", "bas", "64"}),
        ("s3", {"s3", "3"} - {"3"}),
        ("Café", {"caf"}),
        ("ＦＵＬＬ　width", {"full", "width"}),
    ],
)
def test_identifiers_are_cut_into_their_words(text: str, expected: set[str]) -> None:
    """FMT-3: camelCase, snake_case, kebab-case, acronyms, digits, accents and full-width
    letters."""
    assert set(cut(text)) == expected


@pytest.mark.parametrize(
    "family",
    [
        "file files",
        "create creates created creating creation",
        "generate generating generation generator",
        "query queries",
        "map maps mapping mapped",
        "analyze analysis analyses analyzing analyse",
        "address addresses",
        "price prices pricing",
        "move moves moving",
        "convert converting conversion converter converters",
        "split splitting splitter",
        "livable livability",
        "organise organize organising",
        "color colour colours",
        "automatic automatics",
    ],
)
def test_the_endings_of_a_word_do_not_matter(family: str) -> None:
    """FMT-3"""
    assert len({stem(word) for word in family.split()}) == 1


@pytest.mark.parametrize(
    "pair", ["new news", "string strike", "status state", "process product", "thing the"]
)
def test_different_words_stay_different(pair: str) -> None:
    """FMT-3"""
    one, other = pair.split()
    assert stem(one) != stem(other)


def test_stop_words_are_no_terms() -> None:
    """FMT-3"""
    assert cut("Please help me with the files that I have") == ["fil"]


def test_chinese_gives_characters_and_pairs_and_stands_apart_from_letters() -> None:
    """FMT-3"""
    assert words("读取PDF文件") == ["读取", "PDF", "文件"]
    assert grams("读取文件") == ["读", "取", "文", "件", "读取", "取文", "文件"]
    assert is_cjk("文") and is_cjk("ファイル") and is_cjk("파일") and not is_cjk("file")


def test_a_name_is_the_same_without_its_separators_and_case() -> None:
    """FMT-3"""
    assert (
        len(
            {
                plain(name)
                for name in ("read_file", "Read-File", "readFile", "READ FILE", "read.file")
            }
        )
        == 1
    )


@calmly
@given(st.text(max_size=300))
def test_any_text_is_cut_into_short_terms(text: str) -> None:
    """FMT-3: descriptions contain anything."""
    found = cut(text)
    assert all(found), "no empty terms"
    assert all(len(term) <= LONGEST_WORD for term in found)
    assert len(found) <= 6 * len(text)
