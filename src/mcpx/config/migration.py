"""A configuration of any shape as one text in the native shape (CFG-8).

Promised: read in its new place it means exactly what it meant, mode and naming of the old shape
included, or it is told what would differ; comments stay where the old text can be changed in place,
and those that do not are told. References and secrets stay as they are written. Not done here:
writing it.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, cast

from mcpx.config.editing import native_tree
from mcpx.config.edits import Where
from mcpx.config.emit import Form, fresh_text
from mcpx.config.environment import ENV_FILE
from mcpx.config.load import load
from mcpx.config.schema import Config
from mcpx.config.textedit import Unchangeable, rewritten
from mcpx.config.tree import Tree, as_list, as_map
from mcpx.config.written import Written

_COMMENTS = {
    "yaml": r"(?m)(?:^|(?<=\s))#(?!!).*$",
    "json": r"(?m)(?:^|(?<=[\s,{\[]))//.*$|/\*[\s\S]*?\*/",
}


@dataclass(frozen=True, slots=True)
class Migrated:
    text: str
    lost: tuple[str, ...]
    """Comments that are not in it."""
    differs: tuple[str, ...]
    """What would mean something else in the new place."""


def form_of(path: Path) -> Form:
    return "json" if path.suffix.lower() in (".json", ".jsonc") else "yaml"


def migrated(written: Written, where: Where, target: Path) -> Migrated:
    """`written` is `where` as it can be read; `target`: the file that the text is for, absolute.
    Raises `Refused` for a configuration that is wrong as it is."""
    assert written.layers is not None
    before = load(where.path, where.environ, where.env)
    tree = _native(written, before, target)
    form = form_of(target)
    text = _text(written, tree, form)
    after = load(target, where.environ, texts={target: text})
    lost = [
        comment for sheet in written.sheets for comment in _comments(sheet.text, sheet.source.form)
    ]
    kept = {" ".join(comment.split()) for comment in _comments(text, form)}
    gone = tuple(comment for comment in dict.fromkeys(lost) if comment not in kept)
    differences = _differences(_bare(before), _bare(after), "")
    return Migrated(text, gone, tuple(dict.fromkeys(differences)))


def _native(written: Written, config: Config, target: Path) -> Tree:
    assert written.layers is not None
    layers = written.layers
    tree: Tree = native_tree(written)
    if layers.whole.dialect != "native":
        naming: Tree = {**layers.whole.naming, **(as_map(tree.pop("naming", None)) or {})}
        tree = {**tree, "mode": config.mode}
        if naming:
            tree = {"mode": config.mode, "naming": naming, **tree}
    for server in cast("list[Tree]", tree.get("mcp_servers") or []):
        connection = as_map(server.get("connection")) or {}
        cwd = connection.get("cwd")
        if (
            isinstance(cwd, str)
            and layers.workspace != target.parent
            and not cwd.startswith(("$", "~"))
        ):
            connection["cwd"] = os.path.join(layers.workspace, cwd)
    common = as_map(tree.get("global")) or {}
    if config.commands and target.parent != layers.folder and common.get("script_paths") is None:
        tree["global"] = {**common, "script_paths": [str(layers.folder)]}
    return _with_words(tree, layers.environment.words)


def _with_words(value: Any, words: Any) -> Any:
    """What a client program gives a meaning of its own is said in full: nobody else knows it."""
    if isinstance(value, str):
        return re.sub(r"\$\$|\$\{([^{}:]*)\}", lambda m: words.get(m[1] or "", m[0]), value)
    if (table := as_map(value)) is not None:
        return {key: _with_words(item, words) for key, item in table.items() if key != ENV_FILE}
    items = as_list(value)
    return value if items is None else [_with_words(item, words) for item in items]


def _text(written: Written, tree: Tree, form: Form) -> str:
    """Changed in place where the shape of the text allows: that keeps its comments."""
    if len(written.sheets) == 1 and written.sheets[0].source.form == form:
        try:
            return rewritten(written.sheets[0].text, form, tree)
        except Unchangeable:
            pass
    return fresh_text(tree, form)


def _comments(text: str, form: str) -> Iterator[str]:
    for found in re.finditer(_COMMENTS.get(form, _COMMENTS["yaml"]), text):
        yield " ".join(found[0].split())


def _bare(config: Config) -> Config:
    """What counts: where scripts may lie does only where there are some, and that something lacks,
    not where."""
    scripts = config.global_.script_paths if config.commands else ()
    servers = tuple(
        replace(each, switched_off=each.switched_off and "off") for each in config.mcp_servers
    )
    commands = tuple(
        replace(each, switched_off=each.switched_off and "off") for each in config.commands
    )
    common = replace(config.global_, script_paths=scripts)
    return replace(
        config, dialect="native", path=None, global_=common, mcp_servers=servers, commands=commands
    )


def _differences(old: Any, new: Any, place: str) -> Iterator[str]:
    """Places at which two values differ."""
    if old == new:
        return
    if type(old) is type(new) and is_dataclass(old):
        for each in fields(old):
            if each.compare:
                name = each.name.removesuffix("_")
                yield from _differences(
                    getattr(old, each.name), getattr(new, each.name), f"{place}.{name}".strip(".")
                )
    elif isinstance(old, tuple) and isinstance(new, tuple):
        pairs = cast("tuple[tuple[Any, ...], tuple[Any, ...]]", (old, new))
        if len(pairs[0]) == len(pairs[1]):
            for index, (left, right) in enumerate(zip(*pairs, strict=True)):
                yield from _differences(left, right, f"{place}[{index}]")
        else:
            yield place
    else:
        yield place
