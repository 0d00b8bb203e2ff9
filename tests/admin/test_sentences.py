"""Sentences of the gateway have codes, and words in every language of the web UI (ADM-3)."""

import ast
import json
import re
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kit.gateway import Gateway
from kit.http_client import fetch
from kit.until import wait_until
from mcpx.admin.sentences import LONGEST, Sentence, recognised, said, templates
from mcpx.clients.catalogue import clients
from mcpx.config.lines import EXPECTED

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src" / "mcpx"
CHINESE = ROOT / "web" / "src" / "said" / "zh-CN.json"
GAP = re.compile(r"(?<!\$)\{(\w+)\}")
ENGLISH = dict(templates())

FILLINGS = ("3", "server", "servers", "allow", "a number", "tools", EXPECTED, ".yaml")
"""What stands in the gaps of a sentence that is made up; some take only one of a few words."""
PARTS = {
    "core/causes.py": {
        "It is switched off: its entry needs something that is not there",
        "It wrote nothing to standard error.",
        "The program ended by itself. 3",
    },
    "core/joint.py": {"3 would be switched off there: 3"},
    "admin/pasting.py": {"; 3"},
    "config/files.py": {"expected 3"},
    "config/source.py": {"3 3", "3 holds 3: expected keys such as 'mcp_servers'"},
}
"""No sentences alone: the whole is known."""


def _chinese() -> dict[str, str]:
    groups = json.loads(CHINESE.read_text(encoding="utf-8"))
    return {
        f"{group}.{name}": text for group, texts in groups.items() for name, text in texts.items()
    }


def _gaps(text: str) -> set[str]:
    return set(GAP.findall(re.sub(r"\{'.'\}", "\0", text)))


def test_every_code_has_chinese_words_with_the_same_gaps() -> None:
    chinese = _chinese()
    assert set(ENGLISH) == set(chinese)
    assert {code for code, text in ENGLISH.items() if _gaps(text) != _gaps(chinese[code])} == set()
    assert {code for code, text in ENGLISH.items() if text == chinese[code]} == set()


# What the sources say
# ------------------------------------------------------------------------------------------------


def _made_up(node: ast.expr) -> Iterator[tuple[str, ...]]:
    """Each text that an expression may be, in all its fillings."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield (node.value,)
    elif isinstance(node, ast.IfExp):
        yield from _made_up(node.body)
        yield from _made_up(node.orelse)
    elif isinstance(node, ast.JoinedStr):
        yield tuple("".join(_part(part, filling) for part in node.values) for filling in FILLINGS)


def _part(part: ast.expr, filling: str) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    assert isinstance(part, ast.FormattedValue)
    return repr(filling) if part.conversion == ord("r") else filling


def _told(call: ast.Call, room: str) -> list[ast.expr]:
    """The arguments of a call that are told to people."""
    name = ast.unparse(call.func).rpartition(".")[2]
    hints = [keyword.value for keyword in call.keywords if keyword.arg == "hint"]
    if name == "Cause" or (room == "admin" and name in ("ApiError", "_unknown")):
        return [*call.args, *hints]
    if name == "EditError":
        return [*call.args[1:], *hints]
    if room == "core" and name == "Told":  # what another replica says of a configuration
        return call.args[:2]
    return [*call.args, *hints] if name == "add" and "findings" in ast.unparse(call.func) else []


def _sayings(file: Path) -> Iterator[tuple[str, ...]]:
    room = file.relative_to(SOURCES).parts[0]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            for argument in _told(node, room):
                yield from _made_up(argument)
        elif isinstance(node, ast.Assign) and (
            room == "admin" or file.name in ("causes.py", "joint.py")
        ):
            names = {target.id for target in node.targets if isinstance(target, ast.Name)}
            if names & {"hint", "told", "why_not", "NOT_TAKEN_UP"}:
                yield from _made_up(node.value)


def test_every_error_hint_cause_and_mistake_has_a_code() -> None:
    """Whoever writes a new sentence gives it a code in `sentences.json`, and Chinese words."""
    unknown: list[str] = []
    for room in ("admin", "config", "core"):
        for file in sorted((SOURCES / room).rglob("*.py")):
            parts = PARTS.get(file.relative_to(SOURCES).as_posix(), set())
            for fillings in _sayings(file):
                is_sentence = " " in fillings[0] and fillings[0] not in parts
                if is_sentence and not any(recognised(text) for text in fillings):
                    unknown.append(f"{file.name}: {fillings[0]}")
    assert unknown == []


def test_every_cause_that_is_guessed_from_words_has_a_code() -> None:
    from mcpx.core import causes

    rows = [*causes._SAID, *causes._ANSWERED]  # pyright: ignore[reportPrivateUsage]
    told = [
        causes._filled(cause, fix, it=it, host="h:1", name="h")
        for _, cause, fix in rows
        for it in ("it", "")
    ]  # pyright: ignore[reportPrivateUsage]
    sayings = [*(one.cause for one in told), *(one.fix for one in told), *causes._GET.values()]  # pyright: ignore[reportPrivateUsage]
    assert {text for text in sayings if recognised(text) is None} <= {
        "The package was not found in the Python package index.",
        "It wants the variable.",
        "h:1 answers, but there is no MCP endpoint at this path (HTTP ).",
        "h:1 sends everybody on to.",
    }, "of these the patterns always find what stands in the gap"


@cache
def _everything_that_is_said() -> str:
    texts: list[str] = []
    for file in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                texts.append("".join(_part(part, "\0") for part in node.values))
    texts += [
        note
        for client in clients()
        for note in (*client.http_notes, *client.stdio_notes, client.token_note)
    ]
    return "\n".join(texts)


PUT_TOGETHER = re.compile(
    r"system\.|mode\.(?:about|more)|note\.held|problem\.(?:exited|signal|not_json|a_page|private|not_allowed_arguments)"
    r"|edit\.client_file|paste\.(?:not_openapi|not_curl|openapi\w*_one|openapi_one|expected)|mark\.(?:required|optional)"
    r"|config\.(?:expected_one_of|file_comments|file_no_mapping)|warn\.never_reached|connect\.set"
)
"""Codes of what stands nowhere as it reads: it is put together of pieces, or said by the system."""


def test_no_code_is_left_of_a_sentence_that_nobody_says_any_more() -> None:
    whole = _everything_that_is_said()
    gone = [
        f"{code}: {words}"
        for code, text in ENGLISH.items()
        if not PUT_TOGETHER.match(code)
        for words in map(str.strip, re.split(r"[^A-Za-z ]+", GAP.sub("\0", text)))
        if len(words) > 8 and words not in whole
    ]
    assert gone == []


# Recognising
# --------------------------------------------------------------------------------------------------


def test_a_sentence_within_another_has_its_own_code() -> None:
    started = Sentence("plan.started", {"n": "1", "names": "github"})
    kept = Sentence("plan.kept", {"n": "4"})
    assert recognised("1 started (github), 4 kept") == Sentence(
        "plan.comma", {"first_said": started, "rest_said": kept}
    )


def test_what_another_replica_says_has_its_own_code() -> None:
    files = Sentence("replica.other_files", {"ours": "a.yaml", "theirs": "b.yaml"})
    assert recognised("its configuration is in a.yaml, not in b.yaml") == files
    behind = "this replica does not run what all others do, and takes it up as soon as it can: boom"
    assert recognised(behind) == Sentence("replica.behind_other", {"why": "boom"})


def test_the_words_of_strangers_have_no_code() -> None:
    for text in (
        "boom",
        "x: y; z",
        "rule 7: whatever (it says)",
        "panic: no such thing, nowhere",
        "a" * (LONGEST + 1),
    ):
        assert recognised(text) is None


@pytest.mark.parametrize(
    "text", ["; " * 500, ": , (" * 200, "rule 1: " * 120, "'" * LONGEST, "a, " * 333]
)
def test_no_text_takes_long_to_be_looked_at(text: str) -> None:
    began = time.perf_counter()
    recognised(text[:LONGEST])
    assert time.perf_counter() - began < 0.5


def test_values_are_parts_of_what_is_told_anyway() -> None:
    """A secret that was blotted out of a sentence is not in its values."""
    told = said({"cause": "Nothing listens at ***@host.", "lines": ["boom", "nothing changed"]})
    assert told == {
        "cause": Sentence("cause.nothing_listens", {"host": "***@host"}),
        "lines.1": Sentence("plan.nothing", {}),
    }


def test_the_api_tells_codes_beside_english_sentences() -> None:
    """ADM-3: the API itself knows one language."""
    server = {
        "name": "broken",
        "connection": {"type": "stdio", "command": "no-such-program-of-mcpx"},
    }
    with Gateway({"mcp_servers": [server]}, admin=True) as gateway:

        def told() -> dict[str, Any]:
            return fetch(
                gateway.admin_url, "/api/mcp-servers/broken", headers=gateway.admin_headers
            ).json

        wait_until(lambda: told()["cause"] is not None)
        detail = told()
        assert detail["fix"].startswith("install no-such-program-of-mcpx")
        assert detail["said"]["fix"] == {
            "code": "fix.install",
            "values": {"command": "no-such-program-of-mcpx"},
        }
        assert detail["said"]["cause"]["code"].startswith("cause.not_found")
        error = fetch(
            gateway.admin_url, "/api/mcp-servers/brokn", headers=gateway.admin_headers
        ).json["error"]
        assert error["message"] == "there is no server named 'brokn'"
        noun = {"code": "noun.server", "values": {}}
        assert error["said"]["message"] == {
            "code": "error.none_named",
            "values": {"noun_said": noun, "name": "brokn"},
        }
