"""Descriptions and queries contain anything, in any amount."""

import random
import string
import tracemalloc

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcpx.catalog.search import Document, Index
from mcpx.catalog.search.postings import DESCRIPTION, Postings
from mcpx.catalog.search.query import LONGEST_QUERY, Asking

calmly = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=60)

TEXT = st.one_of(st.text(max_size=60), st.text("abAB_- 文件读0", max_size=30))
DOCUMENTS = st.lists(
    st.builds(
        Document,
        TEXT,
        TEXT,
        st.text("ab", max_size=2),
        TEXT,
        TEXT,
        st.tuples() | st.tuples(st.tuples(TEXT, TEXT)),
    ),
    max_size=8,
)


@calmly
@given(DOCUMENTS, TEXT)
def test_any_text_can_be_searched_for_in_any_text(documents: list[Document], query: str) -> None:
    """FMT-3"""
    index = Index(documents)
    hits = index.search(query, limit=100)
    assert hits == Index(documents).search(query, limit=100), "the same again"
    assert (
        hits.total == len(hits.hits) == len({hit.position for hit in hits.hits}) <= len(documents)
    )
    assert sorted(hits.hits, key=lambda hit: (-hit.score, hit.position)) == list(hits.hits)
    assert index.search(query, limit=2, offset=1).hits == hits.hits[1:3]


@calmly
@given(DOCUMENTS)
def test_every_tool_is_found_by_its_name(documents: list[Document]) -> None:
    """FMT-3, SUR-4"""
    index = Index(documents)
    for position, document in enumerate(documents):
        if any(character.isalnum() for character in document.public):
            hits = index.search(document.public, limit=100).hits
            assert position in {
                hit.position for hit in hits if hit.score == hits[0].score or hit.score >= 1_000
            }


def test_of_a_huge_query_only_the_beginning_is_read() -> None:
    """FMT-3"""
    index = Index(
        [Document("t1", "t1", "s", "", "weather", ()), Document("t2", "t2", "s", "", "music", ())]
    )
    padding = "x " * LONGEST_QUERY
    assert [hit.position for hit in index.search("weather " + padding * 200 + " music").hits] == [0]


def test_the_concepts_of_a_query_are_bounded() -> None:
    """FMT-3"""
    vocabulary = [f"word{number}x" for number in range(1_000)]
    postings = Postings([("t", "s", "", " ".join(vocabulary[:600]), "", "")])
    assert len(Asking(postings).concepts([" ".join(vocabulary)])[0]) <= 128
    chinese = Postings(
        [("t", "s", "", "".join(chr(0x4E00 + number) for number in range(400)), "", "")]
    )
    assert (
        0
        < len(
            Asking(chinese).concepts(["".join(chr(0x4E00 + number) for number in range(2_000))])[0]
        )
        <= 128
    )


def test_of_a_huge_description_only_the_beginning_is_read() -> None:
    """FMT-3"""
    late = "lots of text " * DESCRIPTION.characters + "weather"
    index = Index(
        [Document("t1", "t1", "s", "", late, ()), Document("t2", "t2", "s", "", "weather", ())]
    )
    assert [hit.position for hit in index.search("weather").hits] == [1]


def test_a_server_of_random_words_costs_little_memory_and_hides_nobody() -> None:
    """FMT-3: new terms are bounded for each service; the others keep theirs."""
    chance = random.Random(1)

    def noise() -> str:
        return " ".join("".join(chance.choices(string.ascii_lowercase, k=7)) for _ in range(600))

    hostile = [
        Document(f"t{n}", f"t{n}", "hostile", noise(), noise(), ((noise(), noise()),))
        for n in range(150)
    ]
    # The last words of the flood are ordinary ones: who comes later must still be able to bring
    # them in.
    hostile.append(Document("last", "last", "hostile", "", "weather forecast", ()))
    honest = Document("sky", "sky", "honest", "", "weather forecast", ())
    tracemalloc.start()
    index = Index([*hostile, honest])
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 20_000_000
    assert index.search("weather forecast", service="honest").total == 1
