"""The text format of Prometheus, version 0.0.4.

Label values are cut, made printable, and escaped. OpenMetrics, exemplars, and timestamps are not
supported.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

LONGEST = 128
"""Characters of a label's value."""


def label(value: str) -> str:
    """A text as the value of a label: short, and of characters that can be seen. Two texts may
    become one."""
    if len(value) > LONGEST:
        value = value[: LONGEST - 1] + "…"
    if value.isprintable():
        return value
    return "".join([char if char.isprintable() else "?" for char in value])


def labelled(**labels: str) -> str:
    """Labels as they stand behind a name; of values that went through `label`."""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def number(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    if value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return repr(value)


Samples = float | None | Mapping[str, float] | Iterable[tuple[str, float]]
"""One value, values by the value of a label, or values with their labels in braces."""


class Text:
    """One scrape."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def counter(self, name: str, help: str, samples: "Samples", label: str = "") -> None:
        self._add(name, "counter", help, samples, label)

    def gauge(self, name: str, help: str, samples: "Samples", label: str = "") -> None:
        self._add(name, "gauge", help, samples, label)

    def _add(self, name: str, kind: str, help: str, samples: "Samples", key: str) -> None:
        """Add a family, unless it has no samples. `key` is the label of the keys of a mapping."""
        if samples is None:
            return
        if isinstance(samples, int | float):
            pairs: Iterable[tuple[str, float]] = [("", samples)]
        elif isinstance(samples, Mapping):
            counts = cast("Mapping[str, float]", samples)
            pairs = [(labelled(**{key: label(text)}), count) for text, count in counts.items()]
        else:
            pairs = samples
        lines = [f"{name}{labels} {number(value)}" for labels, value in pairs]
        if lines:
            self._lines += (f"# HELP {name} {help}", f"# TYPE {name} {kind}", *lines)

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
