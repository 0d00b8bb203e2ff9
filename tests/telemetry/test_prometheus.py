"""OBS-1: the text that Prometheus reads, whatever stands in the labels."""

from prometheus_client.parser import text_string_to_metric_families

from mcpx.telemetry.prometheus import LONGEST, Histogram, Text, label, labelled

HOSTILE = [
    '"',
    "\\",
    "\n",
    "a\nb 1\n# TYPE x counter",
    '"} 1',
    "\r\x00\x1b[31m",
    "\ud800",
    "é✓😀",
    "",
    " ",
    "{}",
    "=,",
]


def read(text: Text) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text.encoded().decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def test_any_text_can_be_a_label_and_stays_in_its_line() -> None:
    text = Text()
    text.counter(
        "x_total",
        "Any.",
        [(labelled(name=label(value)), at) for at, value in enumerate(HOSTILE)],
    )
    body = text.encoded().decode()
    assert len(body.splitlines()) == 2 + len(HOSTILE)
    assert all(line.isprintable() for line in body.splitlines())
    values = {labels[0][1]: value for labels, value in read(text)["x_total"].items()}
    for at, value in enumerate(HOSTILE):
        if value.isprintable():
            assert values[value] == at


def test_a_long_label_is_cut() -> None:
    assert len(label("x" * 10_000)) == LONGEST


def test_a_histogram_counts_upwards_to_all() -> None:
    times = Histogram((0.001, 1.0, 2.5))
    times.counts[:] = [1, 2, 0, 4]
    times.sum = 12.5
    text = Text()
    text.histogram(
        "took_seconds",
        "How long.",
        {labelled(server="a"): times, labelled(server="b"): Histogram((1.0,))},
    )
    found = read(text)
    buckets = {
        dict(key)["le"]: value
        for key, value in found["took_seconds_bucket"].items()
        if ("server", "a") in key
    }
    assert buckets == {"0.001": 1, "1": 3, "2.5": 3, "+Inf": 7}
    assert found["took_seconds_count"][(("server", "a"),)] == 7
    assert found["took_seconds_sum"][(("server", "a"),)] == 12.5


def test_a_family_without_samples_is_left_out() -> None:
    text = Text()
    text.counter("x_total", "None.", [])
    text.gauge("y", "Not known here.", None)
    text.histogram("z", "None.", {})
    assert text.encoded().strip() == b""
