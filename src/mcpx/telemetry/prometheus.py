"""Figures as Prometheus reads them: its text format, version 0.0.4.

Promised: what `Text` gives is read by Prometheus whatever the labels say: they are short,
printable, escaped, and no series stands there twice. Families come in the order they were begun,
each with its help and its type.

Not promised: OpenMetrics, exemplars, timestamps. Prometheus asks for this format in every version
it has.
"""

from collections.abc import Iterable, Mapping, Sequence

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

LONGEST = 128
"""Characters of a label's value."""


def label(value: str) -> str:
    """A text as the value of a label: short, and of characters that can be seen. Two texts may
    become one."""
    value = value if len(value) <= LONGEST else value[: LONGEST - 1] + "…"
    return value if value.isprintable() else "".join(c if c.isprintable() else "?" for c in value)


def labelled(**labels: str) -> str:
    """Labels as they stand behind a name; of values that went through `label`."""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def number(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


class Text:
    """One scrape."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def family(self, name: str, kind: str, help: str, samples: Iterable[tuple[str, float]]) -> None:
        """`samples`: labels in their braces, or nothing, and the value. A family without samples is
        left out."""
        lines = [f"{name}{labels} {number(value)}" for labels, value in samples]
        if lines:
            self._lines += (f"# HELP {name} {help}", f"# TYPE {name} {kind}", *lines)

    def one(self, name: str, kind: str, help: str, value: float | None) -> None:
        """A family of one sample; None of what cannot be known here."""
        self.family(name, kind, help, () if value is None else [("", value)])

    def histogram(self, name: str, help: str, series: "Mapping[str, Histogram]") -> None:
        """`series`: by their labels in braces, or nothing."""
        if not series:
            return
        lines = self._lines
        lines += (f"# HELP {name} {help}", f"# TYPE {name} histogram")
        for labels, histogram in series.items():
            before = f"{name}_bucket{labels[:-1]}," if labels else f"{name}_bucket{{"
            total = 0
            for bound, count in zip(histogram.texts, histogram.counts, strict=True):
                total += count
                lines.append(f'{before}le="{bound}"}} {total}')
            lines.append(f"{name}_sum{labels} {number(histogram.sum)}")
            lines.append(f"{name}_count{labels} {total}")

    def encoded(self) -> bytes:
        return ("\n".join(self._lines) + "\n").encode()


class Histogram:
    """Counts by how long something took."""

    __slots__ = ("counts", "sum", "texts")

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds`: upper ones, in seconds; what is longer than the last counts as well."""
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0
        self.texts = [*(number(bound) for bound in bounds), "+Inf"]
