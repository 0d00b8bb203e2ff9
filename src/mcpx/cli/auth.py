"""`mcpx auth`: sign in to servers, sign out, and see who is signed in where.

A running gateway does it, and continues with the outcome. Without one, a gateway in this process
does it, and the outcome is kept for the next start.
"""

import argparse
import asyncio
import contextlib
import sys
import threading
import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

from mcpx.cli.codes import DONE, FAILED, SIGN_IN, code_if
from mcpx.cli.gateway_client import (
    Verbs,
    known_server,
    local_verbs,
    running_verbs,
    temporary_gateway,
)
from mcpx.cli.output import Table, counted, plain, print_json, printable, say, text_of
from mcpx.cli.questions import read_line
from mcpx.cli.running import mistake, result_of, warn
from mcpx.cli.target import Target
from mcpx.model.call import Json, as_object

PATIENCE_SECONDS = 600.0
SYNTAX = {"status": "[CONFIG]", "login": "NAME [CONFIG]", "logout": "NAME [CONFIG]"}
STATES = {
    "signed_in": "signed in",
    "sign_in_needed": "sign-in needed",
    "not_needed": "not needed",
    "configured": "configured",
    "unknown": "not known",
}


def run(options: argparse.Namespace) -> int:
    action, words, name = options.action, list[str](options.words), ""
    if action != "status" and words:
        name = words.pop(0)
    if (action != "status" and not name) or len(words) > 1:
        raise mistake(f"say: mcpx auth {action} {SYNTAX[action]}")
    options.config_file = next(iter(words), None)
    target = Target.required(options, f"auth {action} {name}".rstrip())
    if action == "status":
        return result_of(_status(target, options.json))
    if action == "login":
        return result_of(_login(target, name, not options.no_browser))
    return result_of(_logout(target, name))


@contextlib.asynccontextmanager
async def _verbs(
    target: Target, only: str | None, *, probe_only: bool = False
) -> AsyncGenerator[Verbs]:
    """`only`: the server that it is about; None means all."""
    running = await running_verbs(target, "auth")
    if running is not None:
        yield running
        return
    from mcpx.core.sign_ins import SignIns

    config = target.load()
    eager = tuple(replace(server, lazy=False) for server in config.mcp_servers)
    config = replace(config, mcp_servers=eager, commands=())
    async with temporary_gateway(config, target.state, probe_only=probe_only) as gateway:
        verbs = local_verbs(SignIns(gateway).verbs)
        started = [
            upstream
            for upstream in gateway.generation.upstreams.values()
            if upstream.signing is not None and only in (None, upstream.name)
        ]
        for upstream in started:
            upstream.connection.start()
        await asyncio.gather(*(upstream.settled.wait() for upstream in started))
        yield verbs


async def _status(target: Target, as_json: bool) -> int:
    async with _verbs(target, None, probe_only=True) as ask:
        answer = await ask("auth")
    if as_json:
        print_json(answer)
    else:
        _print_status(answer["servers"], as_object(answer.get("store")))
    is_needed = any(server["state"] == "sign_in_needed" for server in answer["servers"])
    return code_if(is_needed, SIGN_IN)


def _print_status(servers: list[Json], store: Json) -> None:
    table = Table("SERVER", "SIGN-IN", "BY", "DETAIL")
    for server in servers:
        about = as_object(server.get("sign_in"))
        by = str(server.get("auth") or "oauth" * bool(about) or "-")
        state = STATES.get(str(server["state"]), str(server["state"]))
        table.add(plain(server["name"]), state, by, _detail(server, about))
    table.print()
    for server in servers:
        if server["auth_url"]:
            url = printable(server["auth_url"])
            say(f"sign in to {plain(server['name'])}: {url}")
    if store.get("kept") is None:
        return
    line = "nothing is kept"
    if store["kept"]:
        by = store["encrypted_by"]
        how = f"encrypted by {by}" if by else "not encrypted: set MCPX_KEY"
        line = f"sign-ins are kept in the state folder, {how}"
    say(f"{line}")


def _detail(server: Json, about: Json) -> str:
    error = server.get("last_error")
    if error and server["state"] in ("sign_in_needed", "unknown"):
        return plain(str(error).removeprefix(f"{server['name']}: "))
    facts = [str(about.get("issuer") or ""), _validity(about.get("expires"))]
    if about.get("scope"):
        facts.append(f"scopes {about['scope']}")
    return plain(" · ".join(filter(None, facts)))


def _validity(expires: Any) -> str:
    if not isinstance(expires, int | float):
        return ""
    left = expires - time.time()
    if left <= 0:
        return "to be renewed"
    return f"good for {left:.0f} s"


async def _login(target: Target, name: str, browser: bool) -> int:
    """Show where to sign in, and wait until the user has done it."""
    async with _verbs(target, name) as ask:
        answer = known_server(await ask("auth.login", name=name), name)
        if not answer["ok"]:
            return _failed(name, answer)
        if answer["state"] != "sign_in_needed":
            return _report(name, answer)
        url = printable(answer["auth_url"])
        say(f"Sign in to {plain(name)} in a browser:\n\n  {url}\n")
        pasting: asyncio.Future[None] | None = None
        if browser:
            # In a thread, because some browser programs run until their window is closed.
            threading.Thread(target=_open, args=(url,), daemon=True).start()
        elif sys.stdin.isatty():
            pasting = asyncio.ensure_future(_paste(ask, name))
            say("If the browser is on another machine, paste the address it ends at here.")
        sys.stdout.flush()
        try:
            answer = await _wait(ask, name, answer)
        finally:
            if pasting is not None:
                pasting.cancel()
    if not answer["ok"] or answer["state"] != "signed_in":
        return _failed(name, answer)
    return _report(name, answer)


async def _wait(ask: Verbs, name: str, answer: Json) -> Json:
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while answer["ok"] and answer["state"] == "sign_in_needed" and not answer["problem"]:
                answer = await ask("auth.wait", name=name)
    except TimeoutError:
        minutes = PATIENCE_SECONDS / 60
        return {"ok": False, "error": f"nobody signed in within {minutes:.0f} minutes"}
    return answer


def _report(name: str, answer: Json) -> int:
    status, tools = answer["status"], counted(answer["tools"], "tool")
    match answer["state"]:
        case "signed_in" if status in ("connected", "degraded"):
            line = f"signed in, {tools}"
        case "signed_in":
            line = f"signed in, but it is {status}: {text_of(answer, 'last_error')}"
        case "configured":
            line = f"nothing to do: the config says how ({answer['auth'] or 'its headers'})"
        case _:
            line = f"nothing to do: it wants no sign-in ({status}, {tools})"
    say(f"{plain(name)}: {line}")
    return DONE


def _failed(name: str, answer: Json) -> int:
    reasons = [answer.get(key) for key in ("error", "problem", "last_error")]
    reason = str(next(filter(None, reasons), "the sign-in did not come about"))
    reason = plain(reason.removeprefix(f"{name}: "))
    warn(f"error: {plain(name)}: not signed in: {reason}")
    return SIGN_IN


def _open(url: str) -> None:
    import webbrowser

    with contextlib.suppress(Exception):  # The terminal shows the URL.
        webbrowser.open(url)


async def _paste(ask: Verbs, name: str) -> None:
    """Take addresses from the terminal until one of them completes the sign-in."""
    with contextlib.suppress(EOFError):
        while True:
            url = await read_line("")
            if not url:
                continue
            answer = await ask("auth.finish", name=name, url=url)
            if answer["ok"]:
                return
            warn(text_of(answer, "error"))


async def _logout(target: Target, name: str) -> int:
    async with _verbs(target, name, probe_only=True) as ask:
        answer = known_server(await ask("auth.logout", name=name), name)
    if not answer["ok"]:
        warn(f"error: {plain(name)}: {text_of(answer, 'error')}")
        return FAILED
    outcome = "nobody was signed in"
    if answer.get("was") == "signed_in":
        outcome = "signed out"
    say(f"{plain(name)}: {outcome}")
    return DONE
