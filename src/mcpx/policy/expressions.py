"""JMESPath with a bound on its work.

An expression of a few characters can make lists that double with every step. Here each step, and
whatever a step makes, is counted as if it were written out, and what takes more than it may raises
`Unjudged`.
"""

from typing import Any

from jmespath.exceptions import JMESPathError
from jmespath.visitor import TreeInterpreter

from mcpx.model.call import is_array, is_object
from mcpx.policy.arguments import Unjudged

_MAKING = frozenset(
    ("flatten", "multi_select_list", "multi_select_dict", "slice", "function_expression")
)


def truth(parsed: Any, value: object, steps: int, letters: int) -> bool:
    """Whether the expression holds for the value, by JMESPath's own idea of what is true."""
    counting = _Counting(steps, letters)
    counting.charge(value)
    try:
        found: Any = counting.visit(parsed, value)
        return not (found is None or found is False or found in ("", [], {}))
    except Unjudged:
        raise
    except (
        JMESPathError,
        ValueError,
        TypeError,
        ArithmeticError,
        LookupError,
        AttributeError,
        RecursionError,
    ):
        raise Unjudged from None


class _Counting(TreeInterpreter):
    def __init__(self, steps: int, letters: int) -> None:
        super().__init__()
        self._left = steps
        self._letters = letters

    def visit(self, node: Any, *args: Any, **kwargs: Any) -> Any:
        self._take(1)
        made: Any = super().visit(node, *args, **kwargs)
        if node["type"] in _MAKING:
            self.charge(made)
        return made

    def visit_function_expression(self, node: Any, value: Any) -> Any:
        given = [self.visit(child, value) for child in node["children"]]
        if (
            node["value"] == "join"
            and len(given) == 2
            and isinstance(given[0], str)
            and is_array(given[1])
        ):
            self._take(len(given[0]) * len(given[1]) // self._letters)
        elif node["value"] == "to_string":
            for each in given:
                self.charge(each)
        functions: Any = vars(self)["_functions"]
        return functions.call_function(node["value"], given)

    def visit_comparator(self, node: Any, value: Any) -> Any:
        made: Any = super().visit_comparator(node, value)
        # What has no order is null to the library, so "more than ten" would not hold for a list of
        # eleven.
        if made is None and all(self.visit(child, value) is not None for child in node["children"]):
            raise Unjudged
        return made

    def charge(self, value: object) -> None:
        stack = [value]
        while stack:
            value = stack.pop()
            self._take(1)
            if isinstance(value, str):
                self._take(len(value) // self._letters)
            if is_object(value):
                self._take(len(value))
                stack += value.values()
            elif is_array(value):
                self._take(len(value))
                stack += value

    def _take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise Unjudged
