"""`python -m bench`: measure, print the tables, keep the numbers in bench/results/. See bench/README.md."""

import argparse
import asyncio
import importlib.util
import json
import signal
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import uvloop

from bench import measure, report
from bench.systems import PAIRS, PEERS, Broken, systems
from bench.upstream import Json

RESULTS = Path(__file__).with_name("results")
DOCUMENT = Path(__file__).parents[1] / "docs" / "performance.md"
DEFAULT = ["direct", "floor", "mcpx", "sdk"]
EFFORTS = {"full": measure.FULL, "quick": measure.QUICK, "smoke": measure.SMOKE}


def main() -> int:
    options = _parser().parse_args()
    if options.write_docs:
        return _write_document(options.output)
    if options.peer and importlib.util.find_spec(options.peer) is None:
        _say(f"{options.peer} is not installed here; see bench/README.md")
        return 1
    chosen = systems([name for name in PEERS if name in (*options.systems, options.peer)])
    pairs = [pair for pair in PAIRS if pair.key in options.pairs]
    try:
        results = uvloop.run(_until_signal(measure.run(pairs, chosen, EFFORTS[options.effort], _say)))
    except Broken as error:
        _say(str(error))
        return 1
    if results is None:
        return 130
    results["effort"]["name"] = options.effort
    output = options.output or RESULTS / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{options.effort}.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(results, indent=1), encoding="utf-8")
    sys.stdout.write(report.tables(results))
    _say(f"{results['seconds']:.0f} s; the numbers are in {output}")
    return 1 if report.errors(results) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    effort = parser.add_mutually_exclusive_group()
    for name, text in (("quick", "under a minute, rough"), ("smoke", "a few dozen calls: does it work at all")):
        effort.add_argument(f"--{name}", dest="effort", action="store_const", const=name, default="full", help=text)
    parser.add_argument("--peer", choices=["fastmcp"], help="one more peer, if it is installed")
    parser.add_argument("--systems", nargs="+", choices=DEFAULT, default=DEFAULT, help="only these")
    every = [pair.key for pair in PAIRS]
    parser.add_argument("--pairs", nargs="+", choices=every, default=every, help="only these: front-upstream")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where the numbers go, or come from")
    parser.add_argument("--write-docs", action="store_true", help="measure nothing: docs/performance.md from numbers")
    return parser


def _write_document(source: Path | None) -> int:
    kept = [source] if source else sorted(RESULTS.glob("*-full.json"))
    if not kept:
        _say("no full run in bench/results/ yet: python -m bench")
        return 1
    DOCUMENT.write_text(report.document(json.loads(kept[-1].read_text(encoding="utf-8"))), encoding="utf-8")
    _say(f"{DOCUMENT.name} written from {kept[-1].name}")
    return 0


async def _until_signal(work: Coroutine[Any, Any, Json]) -> Json | None:
    """The result, or None when a signal came first; what was started is ended either way."""
    task = asyncio.ensure_future(work)

    def stop() -> None:
        if not task.cancelling():  # a second Ctrl-C must not disturb the cleaning up
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    await asyncio.wait([task])
    return None if task.cancelled() else task.result()


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
