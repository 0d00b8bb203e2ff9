"""Every promise of a finished step has a proof: a test that names its id in its docstring or in a comment.

A new step adds its ids to `PROMISED`. What a promise says in words is the first thing its tests tell.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent

PROMISED = {
    "SRC": (1, 2, 8),  # sources: which servers stand behind the gateway
    "SUR": tuple(range(1, 12)),  # surfaces: what a client sees
    "FMT": (1, 2, 3),  # schemas, values, search
    "NAM": (1, 2, 3, 4, 5, 6),  # names, URIs, order and paging
    "PRO": (1, 2, 3, 4, 5, 6, 7),  # protocol behaviour
    "LIF": (1, 2, 3, 4, 5, 6, 7, 8),  # life of a connection
    "CFG": (1, 2, 3, 4, 5, 7),  # configuration
    "RUN": (1, 2, 3, 6),  # running it
    "SEC": (1, 6),  # who is let in, and how much of anything
}

ID = re.compile(r"\b([A-Z]{3})-([0-9]{1,2})\b")


def functions_of(source: str) -> Iterator[tuple[str, str]]:
    """Name and text of each test function of a module, comments and docstring included."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            yield node.name, "\n".join(lines[first - 1 : node.end_lineno])


def proofs() -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for file in sorted(TESTS.rglob("test_*.py")):
        if "node_modules" in file.parts or file == Path(__file__):
            continue
        for name, text in functions_of(file.read_text(encoding="utf-8")):
            for kind, number in ID.findall(text):
                found[f"{kind}-{number}"].append(f"{file.relative_to(TESTS)}::{name}")
    return found


def test_every_promise_of_a_finished_step_has_a_proof() -> None:
    proven = proofs()
    missing = [f"{kind}-{n}" for kind, numbers in PROMISED.items() for n in numbers if f"{kind}-{n}" not in proven]
    assert missing == []


def test_ids_are_found_in_docstrings_comments_and_decorators_of_tests_and_nowhere_else() -> None:
    source = '''
"""A module that mentions AAA-1."""
# so does a comment: BBB-2

@pytest.mark.parametrize("x", [1])  # CCC-3
def test_one(x):
    """EEE-5 and FFF-6."""
    # GGG-7
    assert x

def helper():
    """HHH-8."""

class TestTwo:
    async def test_two(self):
        assert "III-9"
'''
    assert [(name, [f"{kind}-{n}" for kind, n in ID.findall(text)]) for name, text in functions_of(source)] == [
        ("test_one", ["CCC-3", "EEE-5", "FFF-6", "GGG-7"]),
        ("test_two", ["III-9"]),
    ]
