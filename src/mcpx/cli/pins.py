"""`mcpx pins`: what was approved of pinned servers, and what of them is held back (SEC-5).

A gateway that runs on this config is asked; without one it is read from the files it left.
"""

import contextlib
import json
import sys
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from mcpx.cli.codes import WAITS
from mcpx.cli.running import result_of
from mcpx.cli.state import state_folder
from mcpx.config import Config
from mcpx.model.call import Json, as_list, as_object
from mcpx.model.errors import ConfigError
from mcpx.policy.pins.marks import one_line


class Desk(Protocol):
    """Who is asked: a running gateway, or its files."""

    async def __call__(self, verb: str, **more: object) -> Json: ...


class Where:
    """The config, and what it takes to do without a running gateway."""

    def __init__(
        self, path: Path, load: Callable[[], Config], environ: Mapping[str, str], env: str | None
    ) -> None:
        self.path, self.load, self.env = path, load, env
        self.state = state_folder(environ)

    @asynccontextmanager
    async def desk(self) -> AsyncGenerator[Desk]:
        from mcpx.front.control import ask, socket_path

        path = socket_path(self.state, self.path, self.env)
        if await ask(path, "pins.waiting", 20.0) is None:
            yield self._files()
            return

        async def running(verb: str, **more: object) -> Json:
            answer = await ask(path, verb, 60.0, **more)
            return {"ok": False, "error": "the gateway has ended"} if answer is None else answer

        yield running

    def _files(self) -> Desk:
        from mcpx.policy.pins.desk import Desk as Files
        from mcpx.policy.pins.store import Pins

        config, pins = self.load(), Pins(self.state)

        async def save(server: str) -> str | None:
            from mcpx.policy.pins.kept import Unreadable

            try:
                pins.write(server, pins.of(server).kept, mend=True)
            except (OSError, Unreadable) as error:
                return str(error)
            return None

        desk = Files(
            pins, lambda: {server.name: server.trust for server in config.mcp_servers}, save
        )

        async def here(verb: str, **more: object) -> Json:
            if verb not in desk.verbs:
                return {"ok": False, "error": "no gateway runs on this config"}
            return await desk.verbs[verb](more)

        return here


def pins(where: Where, server: str | None, as_json: bool) -> int:
    answer = known(result_of(_pins(where, server)), server or "")
    if not answer["ok"]:
        sys.stderr.write(f"error: {one_line(str(answer.get('error')))}\n")
        return 1
    if as_json:
        sys.stdout.write(
            json.dumps(answer, indent=2) + "\n"
        )  # ASCII: nothing in it steers a terminal
    else:
        _print(answer, server)
    return (
        WAITS
        if any(
            one["held"] or one["state"] in ("quarantine", "damaged") for one in answer["servers"]
        )
        else 0
    )


async def _pins(where: Where, server: str | None) -> Json:
    async with where.desk() as desk:
        return await desk("pins", server=server)


def _print(answer: Json, wanted: str | None) -> None:
    found: list[Json] = answer["servers"]
    if not found:
        which = (
            f"{one_line(wanted)} is trusted as it comes"
            if wanted
            else "all servers are trusted as they come"
        )
        sys.stdout.write(f"{which}; `trust: pin` of a server, or of `global`, pins it\n")
    for one in found:
        name, approved, held = one_line(one["name"]), as_list(one["approved"]), as_list(one["held"])
        facts = [
            one["state"],
            f"{len(approved)} approved"
            + (f" since {local(one['since'])}" if one.get("since") else ""),
            f"{len(held)} held back" if held else "",
        ]
        sys.stdout.write(f"{name}: {' · '.join(filter(None, facts))}\n")
        if one.get("problem"):
            sys.stdout.write(f"  {one_line(str(one['problem']))}\n")
        for entry in map(as_object, held):
            sys.stdout.write(
                f"  held      {thing(entry)}, {entry['how']}, since {local(entry['since'])}\n"
            )
            print_hints(entry, "            ")
        if wanted is not None:
            for entry in map(as_object, approved):
                mark, by = str(entry["fingerprint"])[:12], one_line(str(entry["by"]))
                sys.stdout.write(
                    f"  approved  {thing(entry)}, {mark}, {local(entry['at'])}, by {by}\n"
                )
                print_hints(entry, "            ")
    if any(one["held"] or one["state"] in ("quarantine", "damaged") for one in found):
        sys.stdout.write("`mcpx approve SERVER` shows what differs\n")
    if not answer.get("kept", True):
        sys.stdout.write("nothing of it is kept: there is no state folder\n")


def thing(entry: Json) -> str:
    kind = str(entry["kind"])
    return kind if kind == "instructions" else f"{kind[:-1]} {one_line(str(entry['name']))}"


def print_hints(entry: Json, indent: str) -> None:
    for hint in [*as_list(entry.get("grown")), *as_list(entry.get("hints"))]:
        sys.stdout.write(f"{indent}! {one_line(str(hint))}\n")


def local(stamp: object) -> str:
    with contextlib.suppress(ValueError, OverflowError, OSError):
        if isinstance(stamp, int | float):
            return time.strftime("%Y-%m-%d %H:%M", time.localtime(stamp))
    return "?"


def known(answer: Json, name: str) -> Json:
    """Raises ConfigError for a name that no server has."""
    if answer.get("unknown"):
        from difflib import get_close_matches

        names = [str(one) for one in as_list(answer.get("names"))]
        near = get_close_matches(name, names, n=1, cutoff=0.5)
        there = (
            f"; did you mean {near[0]!r}?"
            if near
            else f"; there is: {', '.join(names)}"
            if names
            else ""
        )
        raise ConfigError([f"error: {answer['error']}{there}"])
    return answer
