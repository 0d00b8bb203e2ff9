"""What the docstrings below the fields of a dataclass say of them: the one text for references and
editors.

Not promised: that there is one. Where a package came without its sources, nothing is said.
"""

import ast
import inspect
import itertools
import textwrap
from functools import cache


@cache
def docs_of(part: type) -> dict[str, str]:
    """By field, those of its bases too."""
    found: dict[str, str] = {}
    for owner in reversed(part.__mro__[:-1]):
        for node, after in itertools.pairwise(_body(owner)):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                text = after.value if isinstance(after, ast.Expr) else None
                if isinstance(text, ast.Constant) and isinstance(text.value, str):
                    found[node.target.id] = inspect.cleandoc(text.value).replace("\n", " ")
    return found


def _body(owner: type) -> list[ast.stmt]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(owner)))
    except (OSError, TypeError, SyntaxError):
        return []
    return tree.body[0].body if tree.body and isinstance(tree.body[0], ast.ClassDef) else []
