"""jmespath over a kept result, within bounds (SUR-11).

Promise: `query` ends soon and makes no more than some tens of megabytes, whatever the expression and the value. Each
step of the evaluation is counted, and so is what one step can do much of: copying lists, writing and comparing text
and nested values. Every mistake is a `BadReading` that says what was wrong, with the place where there is one.

No promise: that the answer is small when written out. `[@, @] | [@, @] | …` is a few lists that refer to each other
and an endless text; who shows an answer measures it first (`excerpt.weigh`).
"""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, cast

from mcpx.surfaces.large.excerpt import weigh
from mcpx.surfaces.large.pages import BadReading

if TYPE_CHECKING:
    from jmespath.visitor import _TreeNode as Node  # pyright: ignore[reportPrivateUsage]

LONGEST = 1_000
"""Characters of an expression."""
STEPS = 1_000_000
"""About a second. A filter with two conditions takes eight steps for each row."""
_MAKING = frozenset({"multi_select_list", "multi_select_dict", "function_expression"})
"""What puts values together anew."""


class _TooMuch(Exception):
    pass


class _Interpreter(Protocol):
    def visit(self, node: Any, *args: Any) -> Any: ...


def query(expression: str, value: object) -> object:
    """What `expression` selects from `value`."""
    import jmespath
    from jmespath.exceptions import ArityError, JMESPathError, JMESPathTypeError, ParseError

    if len(expression) > LONGEST:
        raise BadReading(f"the jmespath expression has {len(expression):,} characters; at most {LONGEST:,} are allowed")
    try:
        return _interpreter()().visit(jmespath.compile(expression).parsed, value)
    except _TooMuch:
        raise BadReading(
            "the jmespath expression takes too many steps on a result of this size; "
            "select less first, e.g. [0:1000] | …, or use grep"
        ) from None
    except RecursionError:
        raise BadReading("the jmespath expression is nested too deeply") from None
    except JMESPathTypeError as error:  # its own text would hold the whole value
        raise BadReading(
            f"jmespath: {error.function_name}() takes {' or '.join(error.expected_types)}, not {error.actual_type}"
        ) from None
    except ArityError as error:
        raise BadReading(f"jmespath: {error}") from None
    except ParseError as error:
        at = error.lex_position
        raise BadReading(
            f"jmespath: syntax error at position {at}, "
            + (f"before {expression[at : at + 20]!r}" if at < len(expression) else "the end of the expression")
        ) from None
    except JMESPathError as error:
        raise BadReading(f"jmespath: {str(error)[:200]}") from None
    except (ValueError, TypeError, ArithmeticError, LookupError, AttributeError, Warning) as error:
        # What the library lets through: comparing a number with a string, a slice with step 0, floor() of infinity.
        raise BadReading(f"jmespath cannot evaluate this: {str(error)[:200]}") from None


def only_selects(expression: str) -> bool:
    """Whether what it selects are parts of the value, none of them twice: then it is no larger than the value.

    `False` for an expression that is wrong: `query` says so.
    """
    import jmespath
    from jmespath.exceptions import JMESPathError

    if len(expression) > LONGEST:
        return False
    try:
        waiting: list[Node] = [jmespath.compile(expression).parsed]
    except (JMESPathError, RecursionError, ValueError, Warning):
        return False
    while waiting:
        node = waiting.pop()
        if node["type"] in _MAKING:
            return False
        children = node["children"]
        if node["type"] == "filter_projection":
            children = children[:2]  # not the condition
        elif node["type"] == "slice":
            children = []  # three numbers
        waiting.extend(children)
    return True


@cache
def _interpreter() -> type[_Interpreter]:
    """jmespath's own interpreter that counts. Made when first needed: the library is not loaded at start-up."""
    from jmespath.functions import Functions
    from jmespath.visitor import TreeInterpreter

    class Bounded(TreeInterpreter):
        def __init__(self) -> None:
            super().__init__()
            self._bounded_functions = Functions()
            self._methods: dict[str, Callable[..., Any]] = {}
            self._left = STEPS

        def visit(self, node: "Node", *args: Any, **kwargs: Any) -> Any:
            self._left -= 1
            if self._left < 0:
                raise _TooMuch
            kind = node["type"]
            method = self._methods.get(kind)  # not by way of super(): every step comes through here
            if method is None:
                method = self._methods[kind] = getattr(self, f"visit_{kind}")
            result = method(node, *args)
            if type(result) is str and len(result) > 255:
                self._spend(len(result) >> 8)  # it may be compared with others
            return result

        def visit_flatten(self, node: "Node", value: Any) -> Any:
            base = self.visit(node["children"][0], value)
            if not isinstance(base, list):
                return None
            rows = cast(list[Any], base)
            self._spend(sum(len(cast(list[Any], row)) if isinstance(row, list) else 1 for row in rows) >> 1)
            merged: list[Any] = []
            for row in rows:
                if isinstance(row, list):
                    merged.extend(cast(list[Any], row))
                else:
                    merged.append(row)
            return merged

        def visit_projection(self, node: "Node", value: Any) -> Any:
            inner, each = node["children"]
            if each["type"] != "identity":
                return super().visit_projection(node, value)
            base = self.visit(inner, value)  # the elements as they are: no step for each of them
            if not isinstance(base, list):
                return None
            rows = cast(list[Any], base)
            self._spend(len(rows) >> 1)
            return [row for row in rows if row is not None]

        def visit_slice(self, node: "Node", value: Any) -> Any:
            if isinstance(value, list):
                self._spend_copy(len(cast(list[Any], value)))
            return super().visit_slice(node, value)

        def visit_comparator(self, node: "Node", value: Any) -> Any:
            sides: list[object] = [self.visit(child, value) for child in node["children"]]
            if all(isinstance(side, (list, dict)) for side in sides):
                self._spend_deep(sides[0])
            settled: list[dict[str, object]] = [{"type": "literal", "value": side, "children": []} for side in sides]
            return super().visit_comparator({**node, "children": settled}, value)  # pyright: ignore[reportArgumentType]

        def visit_function_expression(self, node: "Node", value: Any) -> Any:
            name: str = node["value"]
            arguments = [self.visit(child, value) for child in node["children"]]
            for argument in arguments:
                if isinstance(argument, list) and name != "length":
                    self._spend_list(name, cast(list[Any], argument), arguments)
                elif isinstance(argument, dict) and name != "length":
                    self._spend(len(cast(dict[str, Any], argument)))
            if name == "to_string" and arguments:
                self._spend_deep(arguments[0])
            result = self._bounded_functions.call_function(name, arguments)
            if isinstance(result, str):
                self._spend(len(result) >> 4)
            return result

        def _spend_list(self, name: str, items: list[Any], arguments: list[Any]) -> None:
            self._spend_copy(len(items))
            if name in ("contains", "join", "max", "min", "sort"):
                self._spend(sum(len(item) for item in items if isinstance(item, str)) >> 4)
            if name == "join" and isinstance(arguments[0], str):
                self._spend(len(arguments[0]) * len(items) >> 4)
            if name == "contains" and isinstance(arguments[-1], (list, dict)):
                self._spend_deep(items)

        def _spend_copy(self, count: int) -> None:
            self._spend(count >> 2)

        def _spend_deep(self, value: object) -> None:
            weight = weigh(value, self._left * 4)
            if weight > self._left * 4:  # it stopped there; the rest may be endless
                raise _TooMuch
            self._left -= weight // 4

        def _spend(self, steps: int) -> None:
            self._left -= steps
            if self._left < 0:
                raise _TooMuch

    return Bounded
