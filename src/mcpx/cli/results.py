"""Results as they are printed: texts as texts, JSON readable on a terminal, what is no text into a
file or by its size.

Promised: piped, a text is what the server sent, byte by byte; on a terminal nothing of it steers
the terminal.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from mcpx.cli.terminal import plain, print_json, shown
from mcpx.library.values import Content, Result
from mcpx.model.errors import ConfigError


def print_result(result: Result, output: str | None) -> None:
    """What a call came to; an error of the tool's own goes to stderr."""
    stream = sys.stderr if result.is_error else sys.stdout
    saved = [] if output is None else save(result.content, output)
    told = [block for block in result.content if block not in saved]
    if not result.content and result.structured is not None:
        print_json(result.structured)
    for block in told:
        print_block(block, stream)


def print_block(block: Content, where: TextIO | None = None) -> None:
    stream = sys.stdout if where is None else where
    if block.text:
        write(readable(block.text) if stream.isatty() else block.text, stream)
    elif block.data:
        kind = block.mime_type or "unknown type"
        write(f"[{block.type}, {kind}, {len(block.data):,} bytes; -o FILE saves it]", stream)
    elif block.type == "resource_link":
        write(
            f"[{block.raw.get('title') or block.raw.get('name') or 'resource'}: {block.uri}]",
            stream,
        )
    elif block.type not in ("text", "resource"):
        write(f"[{block.type or 'something of no type'}]", stream)


def write(text: str, stream: TextIO) -> None:
    text = shown(text) if stream.isatty() else text
    stream.write(text if text.endswith("\n") else f"{text}\n")


def readable(text: str) -> str:
    """JSON on several lines; anything else as it is."""
    if text[:1] not in ("{", "["):
        return text
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def save(blocks: Sequence[Content], output: str) -> list[Content]:
    """What is no text goes into the file, several into several; where there is nothing else, the
    texts do."""
    binary = [block for block in blocks if block.data]
    path = Path(output).expanduser()
    try:
        if not binary:
            text = "\n".join(block.text for block in blocks if block.text)
            path.write_text(text, encoding="utf-8", errors="backslashreplace")
            sys.stderr.write(f"wrote {path}\n")
            return [block for block in blocks if block.text]
        for number, block in enumerate(binary, 1):
            file = path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")
            file.write_bytes(block.data)
            kind = plain(block.mime_type or block.type)
            sys.stderr.write(f"wrote {file} ({kind}, {len(block.data):,} bytes)\n")
    except OSError as error:
        raise ConfigError(
            [f"error: {output} cannot be written: {error.strerror or error}"]
        ) from None
    return binary


def print_query(result: Result, expression: str, as_json: bool) -> None:
    """What a JMESPath expression finds in its JSON; of a result that has none, in the result as it
    came. A text stands alone unless JSON is read."""
    value = result.value
    found = _searched(expression, dict(result.raw) if isinstance(value, str) else value)
    if isinstance(found, str) and not as_json:
        write(found, sys.stdout)
    else:
        print_json(found)


def compiled(expression: str) -> Any:
    """Raises `ConfigError`: told before anything is called."""
    import jmespath
    from jmespath.exceptions import JMESPathError

    try:
        return jmespath.compile(expression)
    except JMESPathError as error:
        raise ConfigError([f"error: --jmespath: {' '.join(str(error).split())}"]) from None


def _searched(expression: str, value: Any) -> Any:
    from jmespath.exceptions import JMESPathError

    try:
        return compiled(expression).search(value)
    except JMESPathError as error:
        raise ConfigError([f"error: --jmespath: {' '.join(str(error).split())}"]) from None
