"""Texts of a configuration and what differs between them, for people: without their secrets.

Promised: a literal secret is masked; one that changed is marked as new, so that the change is seen.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from mcpx.base.text_diff import lines_of, unified_diff
from mcpx.config.load import Texts
from mcpx.config.masking import Masks, secrets_written
from mcpx.config.source import Source, tree_of
from mcpx.config.tree import Tree
from mcpx.config.written import Written, in_lines, mask_text

LONGEST = 200_000
"""Characters of a difference that are told."""


@dataclass(frozen=True, slots=True)
class FileChange:
    path: Path
    text: str
    """As it would be; masked."""
    diff: str
    """Unified; masked."""


def changes(written: Written, texts: Texts) -> tuple[FileChange, ...]:
    before = {str(sheet.path): sheet.text for sheet in written.sheets}
    found: list[FileChange] = []
    for path, text in texts.items():
        former = before.get(str(path), "")
        hidden = _secrets(str(path), former)
        found.append(
            FileChange(
                path,
                shown(str(path), text, hidden=hidden),
                _file_difference(str(path), former, text),
            )
        )
    return tuple(found)


def difference(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    paths = list(dict.fromkeys([*before, *after]))
    told = (_file_difference(path, before.get(path, ""), after.get(path, "")) for path in paths)
    return "".join(told)


def shown(path: str, text: str, known: set[str] | None = None, hidden: Collection[str] = ()) -> str:
    """`hidden`: secrets to mask in a text that cannot be read."""
    form, tree = _read(path, text)
    return mask_text(text, form, tree, Masks(known), hidden)


def _read(path: str, text: str) -> tuple[str, Tree | None]:
    source = Source(Path(path), text)
    source.text = text
    form = source.form
    return form, tree_of(text, form) if form != "toml" else None


def _secrets(path: str, text: str) -> set[str]:
    return secrets_written(_read(path, text)[1] or {})


def _file_difference(path: str, before: str, after: str) -> str:
    if before == after:
        return ""
    known = _secrets(path, before)
    old, new = in_lines(shown(path, before), shown(path, after, known, known))
    name = Path(path).name
    lines = unified_diff(lines_of(old), lines_of(new), f"a/{name}", f"b/{name}")
    told = "".join([f"{line}\n" for line in lines])
    return told if len(told) <= LONGEST else told[:LONGEST] + "\n… and more\n"
