"""`mcpx approve` and `mcpx pins`: definitions of pinned servers, and calls that wait for a person
(SEC-5).

An approval names the fingerprints that were shown. Definitions that have changed since are still
withheld. A running gateway answers; without one, the files that it left are read.
"""

import argparse
import contextlib
import json
import re
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

from mcpx.cli.codes import DONE, FAILED, WAITS, code_if
from mcpx.cli.gateway_client import Verbs, known_server, local_verbs, running_verbs
from mcpx.cli.output import agreed, can_ask, counted, objects, print_json, say
from mcpx.cli.running import mistake, result_of, warn
from mcpx.cli.target import Target, subject_of
from mcpx.model.call import Json, as_list
from mcpx.policy.pins.review import one_line, visible

MAX_FINGERPRINTS = 400
"""In one request to a running gateway."""


def pins(options: argparse.Namespace) -> int:
    server = subject_of(options)
    return result_of(_pins(Target.required(options, "pins --config"), server, options.json))


def approve(options: argparse.Namespace) -> int:
    what = subject_of(options)
    return result_of(_approve(Target.required(options, "approve --config"), what, options))


async def _verbs(target: Target) -> Verbs:
    running = await running_verbs(target, "pins.waiting")
    if running is not None:
        return running
    from mcpx.base.state_file import UnreadableState
    from mcpx.policy.pins.desk import Desk, Trusts
    from mcpx.policy.pins.pinned import Pins

    config, pins = target.load(), Pins(target.state)

    def trusts() -> Trusts:
        return {server.name: server.trust for server in config.mcp_servers}

    async def save(server: str) -> str | None:
        try:
            pins.write(server, pins.of(server).kept, mend=True)
        except (OSError, UnreadableState) as error:
            return str(error)
        return None

    return local_verbs(Desk(pins, trusts, save).verbs)


async def _ask(ask: Verbs, verb: str, server: str | None, **more: object) -> Json:
    """Raises ConfigError if the request fails."""
    answer = known_server(await ask(verb, server=server, **more), server or "")
    if not answer.get("ok"):
        raise mistake(f"{_line(answer.get('error'))}")
    return answer


def _line(text: object) -> str:
    return one_line(str(text))


# Approved definitions


async def _pins(target: Target, server: str | None, as_json: bool) -> int:
    ask = await _verbs(target)
    answer = known_server(await ask("pins", server=server), server or "")
    if not answer["ok"]:
        warn(f"error: {_line(answer.get('error'))}")
        return FAILED
    if as_json:
        print_json(answer)
    else:
        say(*_pin_lines(answer, server))
    return code_if(any(map(_waits, answer["servers"])), WAITS)


def _waits(server: Json) -> bool:
    return bool(server["held"]) or server["state"] in ("quarantine", "damaged")


def _pin_lines(answer: Json, wanted: str | None) -> Iterator[str]:
    servers = objects(answer["servers"])
    if not servers:
        which = "all servers are trusted as they come"
        if wanted:
            which = f"{_line(wanted)} is trusted as it comes"
        yield f"{which}; `trust: pin` of a server, or of `global`, pins it"
    for server in servers:
        yield from _pinned_lines(server, wanted is not None)
    if any(map(_waits, servers)):
        yield "`mcpx approve SERVER` shows what differs"
    if not answer.get("kept", True):
        yield "nothing of it is kept: there is no state folder"


def _pinned_lines(server: Json, fully: bool) -> Iterator[str]:
    approved, held = objects(server["approved"]), objects(server["held"])
    facts = [str(server["state"]), f"{len(approved)} approved"]
    if server.get("since"):
        facts[1] += f" since {_time(server['since'])}"
    if held:
        facts.append(f"{len(held)} held back")
    yield f"{_line(server['name'])}: {' · '.join(facts)}"
    if server.get("problem"):
        yield f"  {_line(server['problem'])}"
    for entry in held:
        yield f"  held      {_thing(entry)}, {entry['how']}, since {_time(entry['since'])}"
        yield from _hints(entry, 12)
    if not fully:
        return
    for entry in approved:
        mark = str(entry["fingerprint"])[:12]
        yield f"  approved  {_thing(entry)}, {mark}, {_time(entry['at'])}, by {_line(entry['by'])}"
        yield from _hints(entry, 12)


def _thing(entry: Json) -> str:
    kind = str(entry["kind"])
    if kind == "instructions":
        return kind
    return f"{kind[:-1]} {_line(entry['name'])}"


def _hints(entry: Json, indent: int) -> Iterator[str]:
    for hint in [*as_list(entry.get("grown")), *as_list(entry.get("hints"))]:
        yield f"{' ' * indent}! {_line(hint)}"


def _time(stamp: object) -> str:
    with contextlib.suppress(ValueError, OverflowError, OSError):
        if isinstance(stamp, int | float):
            return time.strftime("%Y-%m-%d %H:%M", time.localtime(stamp))
    return "?"


# Approving


async def _approve(target: Target, what: str | None, options: argparse.Namespace) -> int:
    ask = await _verbs(target)
    calls = objects((await ask("approvals")).get("calls"))
    if what is None:
        if options.deny:
            raise mistake("--deny needs the id of a call: mcpx approve CALL-ID --deny")
        servers = objects((await _ask(ask, "pins.waiting", None)).get("servers"))
        return _list_all(servers, calls, options.json)
    for call in calls:
        if call.get("id") == what:
            return await _decide(ask, call, options)
    if options.deny:
        raise mistake(f"no call waits that is called {_line(what)!r}; --deny is for calls")
    return await _definitions(ask, what, options)


def _list_all(servers: list[Json], calls: list[Json], as_json: bool) -> int:
    if as_json:
        print_json({"ok": True, "servers": servers, "calls": calls})
    else:
        say(*_waiting_lines(servers, calls))
    return code_if(servers or calls, WAITS)


def _waiting_lines(servers: list[Json], calls: list[Json]) -> Iterator[str]:
    if not servers and not calls:
        yield "nothing waits"
    for server in servers:
        yield _server_line(server)
        for entry in objects(server["waiting"]):
            yield f"  {_thing(entry)}, {entry['how']}, since {_time(entry['since'])}"
            yield from _hints(entry, 4)
    for call in calls:
        yield from call_lines(call)
    if servers:
        yield "see what differs, and decide: mcpx approve SERVER, or SERVER.TOOL"
    if calls:
        yield "decide about a call: mcpx approve CALL-ID, or with --deny"


def _server_line(server: Json) -> str:
    name, number = _line(server["name"]), counted(len(as_list(server["waiting"])), "definition")
    if server["state"] == "quarantine":
        also = "".join(f", {_line(each)}" for each in as_list(server.get("also")))
        return f"{name}: in quarantine, nothing of it is shown: {number} to approve{also}"
    if server["state"] == "damaged":
        return f"{name}: all of it is held back: {_line(server['problem'])}"
    return f"{name}: {number} held back"


async def _definitions(ask: Verbs, what: str, options: argparse.Namespace) -> int:
    server, wanted = await _server_and_name(ask, what)
    answer = await _ask(ask, "pins.waiting", server, **wanted)
    found = next(iter(objects(answer.get("servers"))), None)
    if found is None:
        say(f"{_line(server)} is trusted as it comes: nothing of it is held back")
        return DONE
    waiting = objects(found["waiting"])
    is_whole = found["state"] in ("quarantine", "damaged")
    if options.json and not options.yes:
        print_json({"ok": True, **found})
        return code_if(waiting or is_whole, WAITS)
    if is_whole and wanted:
        raise mistake(f"{_line(server)} is held back as a whole: mcpx approve {_line(server)}")
    if not waiting and not is_whole:
        say(f"{_line(what)}: nothing waits")
        return DONE
    if not options.json:
        say(*_difference_lines(found, waiting))
    question = f"Approve {counted(len(waiting), 'definition')} of {_line(what)} as shown?"
    if not options.yes and not _agreed(question, "approved", f"mcpx approve {_line(what)} --yes"):
        return WAITS
    return await _let_pass(ask, server, waiting, is_whole, options.json)


async def _server_and_name(ask: Verbs, what: str) -> tuple[str, dict[str, str]]:
    """A server, or the name of a definition of the server with the longest matching name."""
    answer = await ask("pins.waiting", server=what)
    if not answer.get("unknown"):
        return what, {}
    for name in sorted(map(str, as_list(answer.get("names"))), key=len, reverse=True):
        if what.startswith(f"{name}."):
            return name, {"name": what[len(name) + 1 :]}
    if re.fullmatch(r"[0-9a-f]{8}", what):
        raise mistake(
            f"no call {what} waits, and no server is called so: it was decided, has "
            "expired (they wait for 15 minutes), or the gateway was started anew"
        )
    known_server(answer, what)
    raise AssertionError  # `known_server` has raised.


def _difference_lines(server: Json, waiting: Iterable[Json]) -> Iterator[str]:
    yield _server_line(server)
    for entry in waiting:
        since = _time(entry["since"])
        line = f"\n{_thing(entry)}: {entry['how']}, held back since {since}"
        if entry.get("for_some"):
            line += ", only some clients are offered it"
        yield line
        yield from _hints(entry, 2)
        for line in as_list(entry.get("diff")):
            yield f"  {visible(str(line))}"
    yield ""


def _agreed(question: str, done: str, command: str) -> bool:
    sys.stdout.flush()
    if not can_ask():
        say(f"nothing was {done}; to do it: {command}")
        return False
    if agreed(question):
        return True
    say(f"nothing was {done}")
    return False


async def _let_pass(
    ask: Verbs, server: str, waiting: list[Json], is_whole: bool, as_json: bool
) -> int:
    shown = [str(entry["fingerprint"]) for entry in waiting]
    approved: list[Any] = []
    missing, answer = 0, Json()
    for start in range(0, max(len(shown), 1), MAX_FINGERPRINTS):
        part = shown[start : start + MAX_FINGERPRINTS]
        is_last = start + MAX_FINGERPRINTS >= len(shown)
        answer = await ask(
            "pins.approve", server=server, fingerprints=part, release=is_whole and is_last
        )
        approved += as_list(answer.get("approved"))
        missing += int(answer.get("missing") or 0)
        if not answer.get("ok"):
            warn(f"error: {_line(server)}: {_line(answer.get('error'))}")
            return FAILED
    if as_json:
        print_json({**answer, "approved": approved, "missing": missing})
        return code_if(missing, WAITS)
    out = ", out of quarantine" * is_whole
    say(f"{_line(server)}: {counted(len(approved), 'definition')} approved{out}")
    if missing:
        say(f"{missing} not approved: changed again since it was shown, or gone; look again")
    return code_if(missing, WAITS)


# Calls


async def _decide(ask: Verbs, call: Json, options: argparse.Namespace) -> int:
    what = _line(call["id"])
    if not options.json:
        say(*call_lines(call))
    is_decided = options.yes or options.deny
    command = f"mcpx approve {what} --yes, or --deny"
    if not is_decided and not _agreed("Allow it, once?", "decided", command):
        return WAITS
    answer = await ask("decide", id=str(call["id"]), allow=not options.deny, by="command line")
    is_done = bool(answer.get("ok"))
    if options.json:
        print_json(answer)
    elif is_done:
        outcome = "may be made once"
        if options.deny:
            outcome = "denied"
        say(f"{what}: {outcome}")
    else:
        error = answer.get("error") or "it does not wait any more"
        warn(f"error: {_line(error)}")
    return code_if(not is_done, FAILED)


def call_lines(call: Json) -> Iterator[str]:
    """A call with its arguments as the gateway keeps them. The gateway has shortened them already,
    with a note for each omission."""
    arguments = call.get("arguments")
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    line = f"call {_line(call.get('id'))}: {_line(call.get('principal'))} wants "
    line += _line(f"{call.get('server')}.{call.get('tool')}")
    if call.get("reason"):
        line += f" ({_line(call['reason'])})"
    if call.get("expires_at"):
        line += f", until {_time(call['expires_at'])}"
    yield line
    yield "  " + visible(arguments).replace("\n", "<U+000A>").replace("\t", "<U+0009>")
