"""`mcpx auth`: sign in to servers, sign out, and see who is signed in where (section 6).

A gateway that runs on this config is asked to do it, and goes on with the outcome. Without one it
is done here, and the outcome is kept for the next start.
"""

import asyncio
import contextlib
import json
import logging
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from mcpx.base import PORTABLE
from mcpx.cli.codes import SIGN_IN
from mcpx.cli.running import result_of
from mcpx.cli.state import state_folder
from mcpx.cli.terminal import plain, printable
from mcpx.cli.words import counted
from mcpx.config import Config
from mcpx.model.call import Json, as_object
from mcpx.model.errors import ConfigError

PATIENCE = 600.0
"""Seconds that somebody may take to sign in."""
WORDS = {
    "signed_in": "signed in",
    "sign_in_needed": "sign-in needed",
    "not_needed": "not needed",
    "configured": "configured",
    "unknown": "not known",
}


class Desk(Protocol):
    """Who is asked: a running gateway, or one that was made for this."""

    async def __call__(self, verb: str, **more: object) -> Json: ...


class Where:
    """The config, and what it takes to do without a running gateway."""

    def __init__(
        self, path: Path, load: Callable[[], Config], environ: Mapping[str, str], env: str | None
    ) -> None:
        self.path, self.load, self.environ, self.env = path, load, environ, env
        self.state = state_folder(environ)

    @asynccontextmanager
    async def desk(self, wanted: str | None, *, looks: bool = False) -> AsyncGenerator[Desk]:
        """`wanted`: the one server it is about; None: all of them. `looks`: nobody is asked to sign
        in."""
        from mcpx.front.control import ask, socket_path

        path = socket_path(self.state, self.path, self.env)
        if await ask(path, "auth", 5.0) is not None:

            async def running(verb: str, **more: object) -> Json:
                answer = await ask(path, verb, 60.0, **more)
                return {"ok": False, "error": "the gateway has ended"} if answer is None else answer

            yield running
            return
        async with self._made(wanted, looks) as made:
            yield made

    @asynccontextmanager
    async def _made(self, wanted: str | None, looks: bool) -> AsyncGenerator[Desk]:
        from mcpx.core.gateway import Gateway
        from mcpx.core.sign_ins import SignIns
        from mcpx.processes import process

        logging.getLogger("mcpx").addHandler(
            logging.NullHandler()
        )  # what goes wrong is told in the answers
        config = self.load()
        once = tuple(
            replace(server, auto_reconnect=False, lazy=False) for server in config.mcp_servers
        )
        gateway = Gateway(
            replace(config, mcp_servers=once, commands=()), self.environ, self.state, looks=looks
        )
        sign_ins = SignIns(gateway)
        upstreams = gateway.generation.upstreams
        started = [
            u for u in upstreams.values() if u.signing is not None and wanted in (None, u.name)
        ]

        async def here(verb: str, **more: object) -> Json:
            return await sign_ins.verbs[verb](more)

        try:
            for upstream in started:
                upstream.start()
            await asyncio.gather(*(upstream.settled.wait() for upstream in started))
            yield here
        finally:
            await gateway.close()
            await process.end_all()


def status(where: Where, as_json: bool) -> int:
    """Every server: whether somebody has to sign in."""
    answer = result_of(_status(where))
    found: list[Json] = answer["servers"]
    if as_json:
        sys.stdout.write(json.dumps(answer, indent=2) + "\n")
    else:
        _print_status(found, as_object(answer.get("store")))
    return SIGN_IN if any(server["state"] == "sign_in_needed" for server in found) else 0


async def _status(where: Where) -> Json:
    async with where.desk(None, looks=True) as desk:
        return await desk("auth")


def _print_status(found: list[Json], store: Json) -> None:
    rows = [("SERVER", "SIGN-IN", "BY", "DETAIL"), *(_row(server) for server in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        sys.stdout.write("  ".join([*cells, row[-1]]).rstrip() + "\n")
    for server in found:
        if server["auth_url"]:
            sys.stdout.write(
                f"sign in to {plain(server['name'])}: {printable(server['auth_url'])}\n"
            )
    if store.get("kept") is not None:
        how = (
            f"encrypted by {store['encrypted_by']}"
            if store["encrypted_by"]
            else "not encrypted: set MCPX_KEY"
        )
        sys.stdout.write(
            f"sign-ins are kept in the state folder, {how}\n"
            if store["kept"]
            else "nothing is kept\n"
        )


def _row(server: Json) -> tuple[str, str, str, str]:
    about = as_object(server.get("sign_in"))
    facts = [
        str(about["issuer"]) if about.get("issuer") else None,
        _until(about.get("expires")),
        f"scopes {about['scope']}" if about.get("scope") else None,
    ]
    detail = " · ".join(filter(None, facts))
    if server["state"] in ("sign_in_needed", "unknown") and server.get("last_error"):
        detail = str(server["last_error"]).removeprefix(f"{server['name']}: ")
    by = server.get("auth") or ("oauth" if about else "-")
    return plain(server["name"]), WORDS.get(server["state"], server["state"]), by, plain(detail)


def _until(expires: Any) -> str | None:
    if not isinstance(expires, int | float):
        return None
    left = expires - time.time()
    return f"good for {left:.0f} s" if left > 0 else "to be renewed"


def login(where: Where, name: str, browser: bool) -> int:
    """Sign in to one server: show where, wait until somebody has."""
    return result_of(_login(where, name, browser))


async def _login(where: Where, name: str, browser: bool) -> int:
    async with where.desk(name) as desk:
        answer = _known(name, await desk("auth.login", name=name))
        if not answer["ok"]:
            return _failed(name, answer)
        if answer["state"] != "sign_in_needed":
            return _told(name, answer)
        url = printable(answer["auth_url"])
        sys.stdout.write(f"Sign in to {plain(name)} in a browser:\n\n  {url}\n\n")
        if browser:
            threading.Thread(
                target=_open, args=(url,), daemon=True
            ).start()  # some are waited for until they end
        pasted = (
            None if browser or not sys.stdin.isatty() else asyncio.ensure_future(_paste(desk, name))
        )
        if pasted is not None:
            sys.stdout.write(
                "If the browser is on another machine, paste the address it ends at here.\n"
            )
        sys.stdout.flush()
        try:
            async with asyncio.timeout(PATIENCE):
                while (
                    answer["ok"] and answer["state"] == "sign_in_needed" and not answer["problem"]
                ):
                    answer = await desk("auth.wait", name=name)
        except TimeoutError:
            answer = {"ok": False, "error": f"nobody signed in within {PATIENCE / 60:.0f} minutes"}
        finally:
            if pasted is not None:
                pasted.cancel()
    if not answer["ok"] or answer["state"] != "signed_in":
        return _failed(name, answer)
    return _told(name, answer)


def _told(name: str, answer: Json) -> int:
    tools = counted(answer["tools"], "tool")
    match answer["state"]:
        case "signed_in" if answer["status"] in ("connected", "degraded"):
            line = f"signed in, {tools}"
        case "signed_in":
            line = f"signed in, but it is {answer['status']}: {plain(str(answer['last_error']))}"
        case "configured":
            line = f"nothing to do: the config says how ({answer['auth'] or 'its headers'})"
        case _:
            line = f"nothing to do: it wants no sign-in ({answer['status']}, {tools})"
    sys.stdout.write(f"{plain(name)}: {line}\n")
    return 0


def _failed(name: str, answer: Json) -> int:
    reason = str(
        answer.get("error")
        or answer.get("problem")
        or answer.get("last_error")
        or "the sign-in did not come about"
    )
    sys.stderr.write(
        f"error: {plain(name)}: not signed in: {plain(reason.removeprefix(f'{name}: '))}\n"
    )
    return SIGN_IN


def _open(url: str) -> None:
    import webbrowser

    with contextlib.suppress(Exception):  # where to sign in was said
        webbrowser.open(url)


async def _paste(desk: Desk, name: str) -> None:
    """Take addresses from the terminal until one of them was the one."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str] = asyncio.Queue()
    if PORTABLE:  # a thread that is left behind: it ends with the process
        threading.Thread(target=_read_lines, args=(loop, lines.put_nowait), daemon=True).start()
    else:
        loop.add_reader(sys.stdin.fileno(), lambda: lines.put_nowait(sys.stdin.readline()))
    try:
        while line := await lines.get():
            if line.strip():
                answer = await desk("auth.finish", name=name, url=line)
                if answer["ok"]:
                    return
                sys.stderr.write(f"{plain(str(answer['error']))}\n")
    finally:
        if not PORTABLE:
            loop.remove_reader(sys.stdin.fileno())


def _read_lines(loop: asyncio.AbstractEventLoop, take: Callable[[str], None]) -> None:
    with contextlib.suppress(OSError, ValueError, RuntimeError):  # the terminal or the loop is gone
        while line := sys.stdin.readline():
            loop.call_soon_threadsafe(take, line)
        loop.call_soon_threadsafe(take, "")


def logout(where: Where, name: str) -> int:
    """Forget what somebody signed in for."""
    return result_of(_logout(where, name))


async def _logout(where: Where, name: str) -> int:
    async with where.desk(name, looks=True) as desk:
        answer = _known(name, await desk("auth.logout", name=name))
    if not answer["ok"]:
        sys.stderr.write(f"error: {plain(name)}: {plain(str(answer['error']))}\n")
        return 1
    said = "signed out" if answer.get("was") == "signed_in" else "nobody was signed in"
    sys.stdout.write(f"{plain(name)}: {said}\n")
    return 0


def _known(name: str, answer: Json) -> Json:
    """Raises ConfigError for a name that no server has."""
    if answer.get("unknown"):
        raise ConfigError([f"error: {answer['error']}{_meant(name, answer['names'])}"])
    return answer


def _meant(name: str, names: Collection[str]) -> str:
    from difflib import get_close_matches

    if near := get_close_matches(name, names, n=1, cutoff=0.5):
        return f"; did you mean {near[0]!r}?"
    return f"; there is: {', '.join(names)}" if names else "; the config has no servers"
