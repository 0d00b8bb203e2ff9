"""Prints results: text as text, JSON indented on a terminal, and binary content into a file or by
its size.

Piped text is byte for byte what the server sent. On a terminal, it cannot control the terminal.
"""

import json
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from mcpx.cli.output import plain, print_json, shown
from mcpx.cli.running import mistake, warn
from mcpx.library.values import Content, Result


def print_result(result: Result, output: str | None) -> None:
    """The error message of a tool goes to stderr."""
    stream = sys.stderr if result.is_error else sys.stdout
    saved = save(result.content, output) if output is not None else []
    if not result.content and result.structured is not None:
        print_json(result.structured)
    for block in result.content:
        if block not in saved:
            print_block(block, stream)


def print_block(block: Content, where: TextIO | None = None) -> None:
    stream = where or sys.stdout
    if block.text:
        write(readable(block.text) if stream.isatty() else block.text, stream)
    elif block.data:
        kind = block.mime_type or "unknown type"
        write(f"[{block.type}, {kind}, {len(block.data):,} bytes; -o FILE saves it]", stream)
    elif block.type == "resource_link":
        name = block.raw.get("title") or block.raw.get("name") or "resource"
        write(f"[{name}: {block.uri}]", stream)
    elif block.type not in ("text", "resource"):
        write(f"[{block.type or 'something of no type'}]", stream)


def write(text: str, stream: TextIO) -> None:
    if stream.isatty():
        text = shown(text)
    stream.write(text if text.endswith("\n") else f"{text}\n")


def readable(text: str) -> str:
    """Indented, if it is JSON."""
    if text[:1] not in ("{", "["):
        return text
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def save(blocks: Sequence[Content], output: str) -> list[Content]:
    """Save binary blocks, one per file. If there are none, save the text. Returns the saved
    blocks."""
    binary = [block for block in blocks if block.data]
    path = Path(output).expanduser()
    try:
        if not binary:
            texts = [block for block in blocks if block.text]
            text = "\n".join(block.text for block in texts)
            path.write_text(text, encoding="utf-8", errors="backslashreplace")
            warn(f"wrote {path}")
            return texts
        file = path
        for number, block in enumerate(binary, 2):
            file.write_bytes(block.data)
            kind = plain(block.mime_type or block.type)
            warn(f"wrote {file} ({kind}, {len(block.data):,} bytes)")
            file = path.with_name(f"{path.stem}-{number}{path.suffix}")
    except OSError as error:
        raise mistake(f"{output} cannot be written: {error.strerror or error}") from None
    return binary


def print_query(result: Result, expression: str, as_json: bool) -> None:
    """Print what a JMESPath expression finds in the JSON of a result. If a result has none, it is
    searched itself. A text is printed as it is, except for programs."""
    value = result.value
    if isinstance(value, str):
        value = dict(result.raw)
    with _query_errors():
        found = compiled(expression).search(value)
    if isinstance(found, str) and not as_json:
        write(found, sys.stdout)
    else:
        print_json(found)


def compiled(expression: str) -> Any:
    """Raises ConfigError, before anything is called."""
    import jmespath

    with _query_errors():
        return jmespath.compile(expression)


@contextmanager
def _query_errors() -> Generator[None]:
    from jmespath.exceptions import JMESPathError

    try:
        yield
    except JMESPathError as error:
        raise mistake(f"--jmespath: {' '.join(str(error).split())}") from None
