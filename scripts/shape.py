"""Measures the size, nesting, and width of the source tree and compares them with `shape.toml`.

    python scripts/shape.py            # Fails if a figure is above its limit.
    python scripts/shape.py --lower    # Also lowers the limits in the file to the present figures.

Size is counted in tokens of code, without comments and docstrings, because tokens do not depend on
the layout.
"""

import ast
import io
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
SOURCE = REPOSITORY / "src" / "mcpx"
LIMITS = Path(__file__).with_name("shape.toml")

MAX_LINE_LENGTH = 100
SMALL_FILE_TOKENS = 400
WIDE_CLASS_METHODS = 15
NESTED_LEVELS = 5

NESTING = (
    ast.Call,
    ast.IfExp,
    ast.ListComp,
    ast.GeneratorExp,
    ast.DictComp,
    ast.SetComp,
    ast.BoolOp,
    ast.Subscript,
)
SIMPLE_STATEMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return)
LAYOUT_TOKENS = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def _modules() -> Iterator[tuple[Path, str]]:
    built_web_ui = SOURCE / "admin" / "site"
    for path in sorted(SOURCE.rglob("*.py")):
        if not path.is_relative_to(built_web_ui):
            yield path, path.read_text(encoding="utf-8")


def _docstring_lines(tree: ast.AST) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
            continue
        if isinstance(node.value.value, str):
            last = node.end_lineno or node.lineno
            lines.update(range(node.lineno, last + 1))
    return lines


def _count_tokens(text: str, tree: ast.AST) -> int:
    """Count an f-string as one token, as before Python 3.12."""
    docstring_lines = _docstring_lines(tree)
    tokens = open_strings = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        kind = tokenize.tok_name[token.type]
        ends_string = kind in ("FSTRING_END", "TSTRING_END")
        if ends_string:
            open_strings -= 1
        is_code = token.type not in LAYOUT_TOKENS and token.start[0] not in docstring_lines
        if is_code and not open_strings and not ends_string:
            tokens += 1
        if kind in ("FSTRING_START", "TSTRING_START"):
            open_strings += 1
    return tokens


def _nesting(node: ast.AST) -> int:
    """Return how many calls, conditions, and subscripts are inside each other at most."""
    deepest = max(map(_nesting, ast.iter_child_nodes(node)), default=0)
    return deepest + isinstance(node, NESTING)


def _methods(node: ast.ClassDef) -> int:
    return sum(isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) for item in node.body)


def measure() -> dict[str, float]:
    tokens = files = small_files = statements = conditionals = nested = long_lines = 0
    widths: list[int] = []
    for path, text in _modules():
        tree = ast.parse(text)
        file_tokens = _count_tokens(text, tree)
        files += 1
        tokens += file_tokens
        small_files += file_tokens < SMALL_FILE_TOKENS and path.name != "__init__.py"
        long_lines += sum(len(line) > MAX_LINE_LENGTH for line in text.split("\n"))
        for node in ast.walk(tree):
            statements += isinstance(node, ast.stmt)
            conditionals += isinstance(node, ast.IfExp)
            if isinstance(node, SIMPLE_STATEMENTS):
                nested += _nesting(node) >= NESTED_LEVELS
        widths += [_methods(node) for node in tree.body if isinstance(node, ast.ClassDef)]
    return {
        "tokens": tokens,
        "files": files,
        "small_files": small_files,
        "conditionals_per_1000_statements": round(1000 * conditionals / statements, 1),
        "nested_per_1000_statements": round(1000 * nested / statements, 2),
        "long_lines": long_lines,
        "wide_classes": sum(width > WIDE_CLASS_METHODS for width in widths),
        "widest_class": max(widths),
    }


def main() -> int:
    figures = measure()
    limits = tomllib.loads(LIMITS.read_text(encoding="utf-8"))
    exceeded = [name for name, figure in figures.items() if figure > limits[name]]
    for name, figure in figures.items():
        mark = "FAIL" if name in exceeded else "ok"
        print(f"{mark:5}{name} = {figure} (limit {limits[name]})")  # noqa: T201
    if exceeded:
        return 1
    if "--lower" in sys.argv[1:]:
        lines = [f"{name} = {figure}\n" for name, figure in figures.items()]
        comment = (
            "# Limits of scripts/shape.py. Lower a limit when its figure falls; do not raise it.\n"
        )
        LIMITS.write_text(comment + "".join(lines), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
