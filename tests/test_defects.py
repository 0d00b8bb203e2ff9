"""The table of defects stays usable: every entry can be made in the present code, and its test
exists.

`scripts/defects.py` makes the defects and runs the tests.
"""

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
TABLE = REPOSITORY / "tests" / "defects.toml"
ENTRIES = tomllib.loads(TABLE.read_text(encoding="utf-8"))["defect"]

# Number of the last promise of each kind in the specification. Numbers begin with 1 and have no
# gaps.
LAST_PROMISE = {
    "SRC": 8, "SUR": 16, "FMT": 3, "NAM": 6, "PRO": 7, "LIF": 10, "CFG": 9, "ADM": 6,
    "SEC": 8, "OBS": 2, "SCA": 4, "RUN": 8, "EXT": 6, "CUR": 3, "IDN": 3, "BOX": 2,
}  # fmt: skip
PROMISES = {
    f"{kind}-{number}" for kind, last in LAST_PROMISE.items() for number in range(1, last + 1)
}
KEYS = ("promise", "package", "defect", "file", "old", "new", "test")
SENTENCE = re.compile(r"[A-Z`][^.]*(?:\.\S[^.]*)*\.")


@cache
def functions_of(file: str) -> frozenset[str]:
    """The names of the test functions of a module and of its classes, without importing the
    module."""
    found: set[str] = set()
    waiting: list[ast.stmt] = list(ast.parse((REPOSITORY / file).read_text(encoding="utf-8")).body)
    while waiting:
        match waiting.pop():
            case ast.ClassDef(name, body=body) if name.startswith("Test"):
                waiting += body
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) if name.startswith("test_"):
                found.add(name)
            case _:
                pass
    return frozenset(found)


def test_the_table_has_different_defects_of_forty_promises_and_many_packages() -> None:
    assert len(ENTRIES) >= 40
    assert len({entry["promise"] for entry in ENTRIES}) >= 40
    assert len({(entry["file"], entry["old"]) for entry in ENTRIES}) == len(ENTRIES)
    assert len({entry["defect"] for entry in ENTRIES}) == len(ENTRIES)
    assert len({entry["package"] for entry in ENTRIES}) >= 10


@pytest.mark.parametrize(
    "entry", ENTRIES, ids=lambda entry: f"{entry.get('promise')}-{entry.get('package')}"
)
def test_an_entry_can_be_made_in_the_present_code_and_names_a_test(entry: dict[str, str]) -> None:
    assert tuple(entry) == KEYS and all(isinstance(value, str) for value in entry.values())
    assert entry["promise"] in PROMISES
    assert SENTENCE.fullmatch(entry["defect"]), "`defect` is one sentence"
    assert entry["file"].startswith(f"src/mcpx/{entry['package']}/")
    text = (REPOSITORY / entry["file"]).read_text(encoding="utf-8")
    assert text.count(entry["old"]) == 1, (
        f"`old` has to occur once in {entry['file']}: write it anew for this defect"
    )
    changed = text.replace(entry["old"], entry["new"])
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text)), "`new` has to change the code"
    file, _, function = entry["test"].partition("::")
    assert function.partition("[")[0].rpartition("::")[2] in functions_of(file)
