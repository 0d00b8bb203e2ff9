"""`python -m bench.tokens DATA`: what mcpx's formats save, counted with real tokenizers.

DATA is a folder with `live_tools.json` (`{server: {tools: [...]}}`, as `tools/list` answers) and
`search/tools.jsonl` (one `{tool, input_schema}` per line); either may be missing. Token ranks are
js-tiktoken's files: those of `npm ci` in tests/npm, or any given with `--ranks`. What is compared
is always the compact JSON (no spaces, UTF-8).
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import orjson

from bench.bpe import Encoder, default_ranks
from bench.menus import menus, read_queries, replies, shelves
from mcpx.formats.tokens import estimate
from mcpx.formats.toon import Toon
from mcpx.formats.typescript import DESCRIPTION_LENGTH, signature, type_text

Json = dict[str, Any]
Tool = tuple[str, object]
"""Its name and its input schema."""

ENCODINGS = ("o200k_base", "cl100k_base")
VALUES = Path(__file__).with_name("samples") / "values.json"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    files = options.ranks or [
        file for name in ENCODINGS if (file := default_ranks(name)) is not None
    ]
    if not files:
        _say(
            "no token ranks: run `npm ci` in tests/npm, or give a file of js-tiktoken's with "
            "--ranks"
        )
        return 1
    corpora = read_corpora(options.data)
    if not corpora:
        _say(f"neither live_tools.json nor search/tools.jsonl in {options.data}")
        return 1
    catalogs, queries = shelves(options.data), read_queries(options.data)
    results: Json = {"description_length": DESCRIPTION_LENGTH, "encodings": {}}
    for file in files:
        encoder = Encoder.load(file)
        measured: Json = {
            "schemas": schemas(encoder, corpora),
            "values": values(encoder, json.loads(VALUES.read_text(encoding="utf-8"))),
            "menus": menus(encoder, catalogs),
            "replies": [replies(encoder, shelf, queries) for shelf in catalogs if queries],
        }
        results["encodings"][encoder.name] = measured
        sys.stdout.write(tables(encoder.name, measured))
    if options.output:
        options.output.write_text(
            json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.tokens", description=__doc__)
    parser.add_argument("data", type=Path, metavar="DATA", help="the folder with the tools")
    parser.add_argument(
        "--ranks", type=Path, action="append", metavar="FILE", help="a rank file; may be repeated"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="the numbers as JSON")
    return parser


def read_corpora(data: Path) -> dict[str, list[Tool]]:
    """The tools by corpus; a corpus of several servers is followed by its servers, one by one."""
    found: dict[str, list[Tool]] = {}
    live = data / "live_tools.json"
    if live.exists():
        servers: Json = json.loads(live.read_text(encoding="utf-8"))
        each = {
            name: [(t["name"], t["inputSchema"]) for t in server["tools"]]
            for name, server in servers.items()
        }
        found["live servers"] = [tool for tools in each.values() for tool in tools]
        found.update((f"- {name}", tools) for name, tools in each.items())
    corpus = data / "search" / "tools.jsonl"
    if corpus.exists():
        rows = map(json.loads, corpus.read_text(encoding="utf-8").splitlines())
        found["search corpus"] = [(row["tool"], row["input_schema"]) for row in rows]
    return found


def schemas(encoder: Encoder, corpora: dict[str, list[Tool]]) -> list[Json]:
    """Input schemas as JSON, as a type with parameter docs, and without; then whole signatures with
    the tool's name."""
    forms: dict[str, Callable[[str, object], str]] = {
        "json": lambda _, schema: compact(schema),
        "type_docs": lambda _, schema: type_text(schema),
        "type_bare": lambda _, schema: type_text(schema, max_description_len=0),
        "json_named": lambda name, schema: compact({"name": name, "inputSchema": schema}),
        "signature_docs": signature,
        "signature_bare": lambda name, schema: signature(name, schema, max_description_len=0),
    }
    rows: list[Json] = []
    for corpus, tools in corpora.items():
        row: Json = {"corpus": corpus, "tools": len(tools)}
        for form, write in forms.items():
            row[form] = sum(encoder.count(write(name, schema)) for name, schema in tools)
        row["estimate"] = sum(estimate(type_text(schema)) for _, schema in tools)
        rows.append(row)
    return rows


def values(encoder: Encoder, payloads: Json) -> list[Json]:
    """Payloads as JSON, as TOON whatever it costs, and as mcpx writes them."""
    import toons

    rows: list[Json] = []
    for name, payload in payloads.items():
        text = Toon().value(payload)
        row: Json = {"payload": name, "json": encoder.count(compact(payload))}
        row["toon"] = encoder.count(toons.dumps(payload))
        row["chosen"] = encoder.count(text)
        row["form"] = "JSON" if text == compact(payload) else "TOON"
        rows.append(row)
    return rows


def compact(value: object) -> str:
    return orjson.dumps(value).decode()


def tables(name: str, measured: Json) -> str:
    """The numbers of one tokenizer for people to read."""
    lines = [f"## Tokens, {name}", "", "### Input schemas"]
    lines += _table(
        (
            "tools of",
            "n",
            "JSON",
            "types",
            "saved",
            "without docs",
            "saved",
            "signature saves",
            "without docs",
        ),
        (
            (
                row["corpus"],
                row["tools"],
                row["json"],
                row["type_docs"],
                _saved(row["json"], row["type_docs"]),
                row["type_bare"],
                _saved(row["json"], row["type_bare"]),
                _saved(row["json_named"], row["signature_docs"]),
                _saved(row["json_named"], row["signature_bare"]),
            )
            for row in measured["schemas"]
        ),
    )
    lines += ["", "### Values"]
    lines += _table(
        ("payload", "JSON", "TOON", "saved", "chosen", "saved"),
        (
            (
                row["payload"],
                row["json"],
                row["toon"],
                _saved(row["json"], row["toon"]),
                row["form"],
                _saved(row["json"], row["chosen"]),
            )
            for row in measured["values"]
        ),
    )
    lines += ["", "### Menus: all tool definitions of a surface"]
    lines += _table(
        ("tools of", "n", "surface", "tokens", "estimated"),
        (
            [row[key] for key in ("corpus", "tools", "surface", "tokens", "estimate")]
            for row in measured["menus"]
        ),
    )
    if measured["replies"]:
        lines += ["", "### Replies to searches"]
        lines += _table(
            ("tools of", "queries", "median tokens", "largest"),
            (
                [row[key] for key in ("corpus", "queries", "median", "largest")]
                for row in measured["replies"]
            ),
        )
    return "\n".join([*lines, "", ""])


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    lines = [
        head,
        ["---"] + ["---:"] * (len(head) - 1),
        *([str(cell) for cell in row] for row in rows),
    ]
    return [f"| {' | '.join(line)} |" for line in lines]


def _saved(before: int, after: int) -> str:
    return f"{100 - 100 * after / before:.1f} %" if before else "-"


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
