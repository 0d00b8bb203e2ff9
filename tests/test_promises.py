"""Every promise of a finished step has a proof: a test whose docstring names its id, and which can
fail.

A new step adds its ids to `PROMISED`. What a promise says in words is the first thing its tests
tell.

An id counts in the docstring of a test only; in a comment, a decorator, a name or a string it is a
remark. The test must judge something: assert it, or expect an error, in its own body or in a
function of the tests that it calls directly. And each promise is kept by the program, not by its
parts: one proof at least goes through mcpx as a user starts it (`THROUGH_THE_PROGRAM`).
"""

import ast
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent

PROMISED = {
    "SRC": (1, 2, 3, 4, 5, 6, 7, 8),  # sources: which servers and commands stand behind the gateway
    "SUR": tuple(range(1, 13)),  # surfaces: what a client sees
    "FMT": (1, 2, 3),  # schemas, values, search
    "NAM": (1, 2, 3, 4, 5, 6),  # names, URIs, order and paging
    "PRO": (1, 2, 3, 4, 5, 6, 7),  # protocol behaviour
    "LIF": tuple(range(1, 11)),  # life of a connection
    "CFG": (1, 2, 3, 4, 5, 7, 9),  # configuration
    "RUN": (1, 2, 3, 6, 8),  # running it
    "SEC": (
        1,
        2,
        3,
        4,
        5,
        6,
        7,
    ),  # who is let in, sees and may do what, what commands may do, how much of anything
    "OBS": (1, 2),  # what is told to whoever runs it
    "SCA": (1, 2),  # several replicas
    "EXT": (1,),  # protocol extensions
}
IDS = [f"{kind}-{number}" for kind, numbers in PROMISED.items() for number in numbers]

THROUGH_THE_PROGRAM = ("attacks", "behaviour", "conformance", "e2e", "replicas")
"""Folders whose tests use the transports of mcpx, from `app.run` on or as a separate process."""

ID = re.compile(r"\b[A-Z]{3}-[0-9]{1,2}\b")
RANGE = re.compile(r"\b[A-Z]{3}-[0-9]{1,2} (?:to|–|-|…) [A-Z]{3}-[0-9]{1,2}\b")

EXPECTS = {"raises", "fail", "warns"}
"""What of pytest fails a test by itself."""
NEVER_JUDGES = {"skip", "xfail"}
"""Marks under which a test passes whatever happens."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Module:
    """One file of the tests: its functions by name, and the files of the tests it takes functions
    from."""

    functions: dict[str, Function] = field(default_factory=dict)
    """Functions and methods, nested ones left out: those are part of the body they stand in."""
    imports: dict[str, str] = field(default_factory=dict)
    """Name here -> module there."""


def read(source: str) -> Module:
    module = Module()
    waiting: list[ast.AST] = [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Function):
            module.functions[node.name] = node
            continue
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            module.imports |= {alias.asname or alias.name: node.module for alias in node.names}
        waiting += ast.iter_child_nodes(node)
    return module


def judges(function: Function) -> bool:
    """Whether its own body asserts something that may be false, or expects an error."""
    for node in ast.walk(function):
        match node:
            case ast.Assert(test) if not isinstance(test, ast.Constant):
                return True
            case ast.Call(ast.Attribute(ast.Name("pytest"), name)) if name in EXPECTS:
                return True
    return False


def called(function: Function) -> Iterator[str]:
    """Names of functions, methods and fixtures that its body uses directly."""
    yield from (argument.arg for argument in function.args.args)
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            match node.func:
                case ast.Name(name) | ast.Attribute(attr=name):
                    yield name


def may_pass_whatever_happens(function: Function) -> bool:
    return any(
        isinstance(node, ast.Attribute) and node.attr in NEVER_JUDGES
        for decorator in function.decorator_list
        for node in ast.walk(decorator)
    )


def proofs(modules: dict[str, Module]) -> dict[str, list[str]]:
    """Id -> the tests that prove it, as `module::test`."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, module in modules.items():
        reached = {name, *module.imports.values()}
        helpers = {
            word: node
            for other in reached & modules.keys()
            for word, node in modules[other].functions.items()
        }
        for function in module.functions.values():
            ids = ID.findall(ast.get_docstring(function) or "")
            if (
                not ids
                or not function.name.startswith("test_")
                or may_pass_whatever_happens(function)
            ):
                continue
            if judges(function) or any(
                judges(helpers[word]) for word in called(function) if word in helpers
            ):
                for promise in dict.fromkeys(ids):
                    found[promise].append(f"{name}::{function.name}")
    return found


@cache
def all_modules() -> dict[str, Module]:
    modules: dict[str, Module] = {}
    for folder, folders, files in os.walk(TESTS):
        folders[:] = sorted(set(folders) - {"node_modules", "__pycache__"})
        for file in (Path(folder, name) for name in sorted(files) if name.endswith(".py")):
            if file != Path(__file__):
                name = ".".join(file.relative_to(TESTS).with_suffix("").parts)
                modules[name] = read(file.read_text(encoding="utf-8"))
    return modules


def test_every_promise_of_a_finished_step_has_a_proof_that_goes_through_the_program() -> None:
    proven = proofs(all_modules())
    assert [promise for promise in IDS if promise not in proven] == []
    through = {
        promise
        for promise, tests in proven.items()
        if any(test.split(".", 1)[0] in THROUGH_THE_PROGRAM for test in tests)
    }
    assert [promise for promise in IDS if promise not in through] == []


def test_ids_are_written_out_one_by_one() -> None:
    """`AAA-1 to AAA-4` names two promises and means four."""
    ranges = {
        f"{name}::{function.name}": found
        for name, module in all_modules().items()
        for function in module.functions.values()
        if (found := RANGE.findall(ast.get_docstring(function) or ""))
    }
    assert ranges == {}


def test_a_test_that_judges_nothing_proves_nothing() -> None:
    """Only the docstring counts, and only of a test that asserts or expects an error, itself or one
    call away."""
    helper = """
def must_be(value):
    assert value

def only_prints(value):
    print(value)

class Page:
    def shows(self, word):
        assert word in self.text
"""
    source = '''
"""A module that mentions AAA-1."""
# so does a comment: AAA-2
from helping import must_be, only_prints, Page
from elsewhere import unknown

@pytest.mark.parametrize("x", ["AAA-3"])  # AAA-4
def test_in_the_docstring(x):
    """OKA-1 and OKA-2."""
    # AAA-5
    assert x, "AAA-6"

def test_without_an_assert():
    """AAA-7."""
    print("AAA-8")

def test_with_an_assert_that_cannot_fail():
    """AAA-9."""
    assert True

def test_expects_an_error():
    """OKA-3."""
    with pytest.raises(ValueError):
        int("x")

def test_by_a_helper():
    """OKA-4."""
    must_be(1)

def test_by_a_method_of_a_helper():
    """OKA-5."""
    Page().shows("x")

def test_by_a_nested_function():
    """OKA-6."""
    async def check():
        assert 1 + 1 == 2
    run(check)

def test_by_a_helper_that_judges_nothing():
    """AAA-10."""
    only_prints(1)

def test_by_a_helper_nobody_knows():
    """AAA-11."""
    unknown(1)

@pytest.mark.skip
def test_that_is_left_out():
    """AAA-12."""
    assert 1 + 1 == 2

@pytest.mark.xfail(reason="later")
def test_that_may_fail():
    """AAA-13."""
    assert 1 + 1 == 3

def helper():
    """AAA-14."""
    assert 1 + 1 == 2

class TestMore:
    async def test_in_a_class(self):
        """OKA-7."""
        assert 1 + 1 == 2
'''
    found = proofs({"helping": read(helper), "test_it": read(source)})
    assert sorted(found) == [f"OKA-{number}" for number in range(1, 8)]
    assert found["OKA-1"] == ["test_it::test_in_the_docstring"]
