"""jmespath over a kept result (SUR-11).

Promise: every mistake is a `BadReading` that says what was wrong, with the place where there is
one.

No promise: that it ends soon, or that the answer is small when written out: `[@, @] | [@, @] | …`
is a few lists that refer to each other and an endless text. So it runs where both are bounded
(`worker`).
"""

from mcpx.surfaces.large.pages import BadReading

LONGEST = 1_000
"""Characters of an expression."""


def query(expression: str, value: object) -> object:
    """What `expression` selects from `value`."""
    import jmespath
    from jmespath.exceptions import ArityError, JMESPathError, JMESPathTypeError, ParseError

    if len(expression) > LONGEST:
        raise BadReading(
            f"the jmespath expression has {len(expression):,} characters; at most {LONGEST:,} are "
            "allowed"
        )
    try:
        return jmespath.compile(expression).search(value)
    except RecursionError:
        raise BadReading("the jmespath expression is nested too deeply") from None
    except JMESPathTypeError as error:  # its own text would hold the whole value
        raise BadReading(
            f"jmespath: {error.function_name}() takes {' or '.join(error.expected_types)}, not "
            f"{error.actual_type}"
        ) from None
    except ArityError as error:
        raise BadReading(f"jmespath: {error}") from None
    except ParseError as error:
        at = error.lex_position
        raise BadReading(
            f"jmespath: syntax error at position {at}, "
            + (
                f"before {expression[at : at + 20]!r}"
                if at < len(expression)
                else "the end of the expression"
            )
        ) from None
    except JMESPathError as error:
        raise BadReading(f"jmespath: {str(error)[:200]}") from None
    except (ValueError, TypeError, ArithmeticError, LookupError, AttributeError, Warning) as error:
        # What the library lets through: comparing a number with a string, a slice with step 0,
        # floor() of infinity.
        raise BadReading(f"jmespath cannot evaluate this: {str(error)[:200]}") from None
