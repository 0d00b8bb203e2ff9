"""`bench`: measure, print the tables, keep the numbers in bench/results/. See bench/README.md."""

import argparse
import asyncio
import os
import resource
import signal
import sys
import time
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import uvloop

from bench import peers, results
from bench.report import document
from bench.sections import SECTIONS
from bench.systems import OWN, PAIRS, System
from bench.turns import Plan

RESULTS = Path(__file__).with_name("results")
DOCUMENT = Path(__file__).parents[1] / "docs" / "performance.md"
EVERY = (*OWN, *peers.PEERS)


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["peers"]:
        return _peers(given[1:])
    options = _parser().parse_args(given)
    if options.write_docs is not None:
        return _write_document(options.output, options.write_docs)
    plan = Plan(
        options.length,
        _systems(options),
        [pair for pair in PAIRS if pair.key in options.pairs],
        _say,
    )
    file = (
        options.output
        or RESULTS / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{options.length}.json"
    )
    _allow_many_connections()
    if uvloop.run(_until_signal(_measure(plan, options.only, file))) is None:
        return 130
    _say(f"the numbers are in {file}")
    wrong = results.errors(results.load(file), {system.name for system in OWN}, options.only)
    for line in wrong[:20]:
        _say(line)
    return 1 if wrong else 0


async def _measure(plan: Plan, names: Sequence[str], file: Path) -> bool:
    """Section by section; each is kept in the file as soon as it is done."""
    for name in names:
        section = SECTIONS[name]
        began, loads = time.time(), [os.getloadavg()[0]]
        found = await section.measure(plan)
        loads.append(os.getloadavg()[0])
        results.keep(file, name, plan.length, found, began, loads)
        sys.stdout.write(f"## {section.title}\n\n{section.tables(found)}\n")
        sys.stdout.flush()
        _say(f"{name}: {time.time() - began:.0f} s")
    return True


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bench", description=__doc__, epilog="bench peers install: other gateways"
    )
    length = parser.add_mutually_exclusive_group()
    for name, text in (
        ("quick", "a few minutes, rough"),
        ("smoke", "a few calls of everything: does it work at all"),
    ):
        length.add_argument(
            f"--{name}", dest="length", action="store_const", const=name, default="full", help=text
        )
    parser.add_argument(
        "--only", type=_names(list(SECTIONS)), default=list(SECTIONS), help=", ".join(SECTIONS)
    )
    names = [system.name for system in EVERY]
    parser.add_argument("--systems", type=_names(names), metavar="NAMES", help=", ".join(names))
    parser.add_argument(
        "--no-peers", action="store_true", help="only what needs nothing but this repository"
    )
    every = [pair.key for pair in PAIRS]
    parser.add_argument(
        "--pairs", type=_names(every), default=every, metavar="PAIRS", help=", ".join(every)
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="numbers go into it, section by section"
    )
    text = (
        "measure nothing: docs/performance.md (or FILE) from the numbers of --output, or of "
        "the newest full run"
    )
    parser.add_argument(
        "--write-docs", type=Path, nargs="?", const=DOCUMENT, metavar="FILE", help=text
    )
    return parser


def _names(known: Sequence[str]) -> Any:
    def parse(text: str) -> list[str]:
        chosen = text.split(",")
        if unknown := [name for name in chosen if name not in known]:
            raise argparse.ArgumentTypeError(
                f"unknown: {', '.join(unknown)} (there are {', '.join(known)})"
            )
        return [name for name in known if name in chosen]

    return parse


def _systems(options: argparse.Namespace) -> list[System]:
    if options.systems:
        return [system for system in EVERY if system.name in options.systems]
    return [system for system in EVERY if not (options.no_peers and system in peers.PEERS)]


def _peers(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench peers")
    parser.add_argument("verb", choices=["install", "list"])
    verb = parser.parse_args(arguments).verb
    if verb == "list":
        for system in peers.PEERS:
            sys.stdout.write(f"{system.name}: {system.lacks() or 'installed'}\n")
        return 0
    return 1 if peers.install(peers.PACKAGES, _say) else 0


def _write_document(source: Path | None, target: Path) -> int:
    kept = [
        file
        for file in ([source] if source else sorted(RESULTS.glob("*-full.json")))
        if results.load(file)["sections"]
    ]
    if not kept:
        _say("no full run in bench/results/ yet: run bench first, or name a file with --output")
        return 1
    target.write_text(document(results.load(kept[-1])), encoding="utf-8")
    _say(f"{target.name} written from {kept[-1].name}")
    return 0


def _allow_many_connections() -> None:
    """A thousand sessions and a thousand servers are more files than the usual limit has room
    for."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _until_signal(work: Coroutine[Any, Any, bool]) -> bool | None:
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
