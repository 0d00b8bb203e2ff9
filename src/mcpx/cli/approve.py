"""`mcpx approve`: see what waits, and let it pass: definitions of pinned servers, and calls that a
rule asks about.

What is approved is what was shown: it is named by its fingerprints, and what has changed since
stays held back.
"""

import json
import re
import sys
from collections.abc import Iterable
from typing import Any

from mcpx.cli.codes import WAITS
from mcpx.cli.pins import Desk, Where, known, local, print_hints, thing
from mcpx.cli.running import result_of
from mcpx.cli.words import counted
from mcpx.model.call import Json, as_list, as_object
from mcpx.model.errors import ConfigError
from mcpx.policy.pins.marks import one_line, visible

AT_ONCE = 400
"""Fingerprints in one request to a running gateway."""


def approve(where: Where, what: str | None, *, yes: bool, deny: bool, as_json: bool) -> int:
    return result_of(_approve(where, what, yes, deny, as_json))


async def _approve(where: Where, what: str | None, yes: bool, deny: bool, as_json: bool) -> int:
    async with where.desk() as desk:
        calls = await _calls(desk)
        if what is None:
            if deny:
                raise ConfigError(
                    ["error: --deny needs the id of a call: mcpx approve CALL-ID --deny"]
                )
            return _list_all(_good(await desk("pins.waiting")), calls, as_json)
        call = next((call for call in calls if call.get("id") == what), None)
        if call is not None:
            return await _decide(desk, call, yes, deny, as_json)
        if deny:
            raise ConfigError(
                [f"error: no call waits that is called {one_line(what)!r}; --deny is for calls"]
            )
        return await _definitions(desk, what, yes, as_json)


async def _calls(desk: Desk) -> list[Json]:
    """Calls that wait; none where nobody asks about calls."""
    answer = await desk("approvals")
    return [as_object(call) for call in as_list(answer.get("calls"))] if answer.get("ok") else []


def _good(answer: Json) -> Json:
    if not answer.get("ok") and not answer.get("unknown"):
        raise ConfigError([f"error: {one_line(str(answer.get('error')))}"])
    return answer


# Everything that waits
# ---------------------------------------------------------------------------------------------


def _list_all(answer: Json, calls: list[Json], as_json: bool) -> int:
    servers = [as_object(one) for one in as_list(answer.get("servers"))]
    if as_json:
        _print_json({"ok": True, "servers": servers, "calls": calls})
    elif not servers and not calls:
        sys.stdout.write("nothing waits\n")
    else:
        for server in servers:
            _print_server(server)
            for entry in map(as_object, as_list(server["waiting"])):
                sys.stdout.write(
                    f"  {thing(entry)}, {entry['how']}, since {local(entry['since'])}\n"
                )
                print_hints(entry, "    ")
        for call in calls:
            _print_call(call)
        if servers:
            sys.stdout.write("see what differs, and decide: mcpx approve SERVER, or SERVER.TOOL\n")
        if calls:
            sys.stdout.write("decide about a call: mcpx approve CALL-ID, or with --deny\n")
    return WAITS if servers or calls else 0


def _print_server(server: Json) -> None:
    name, waiting = one_line(server["name"]), as_list(server["waiting"])
    told = counted(len(waiting), "definition")
    match server["state"]:
        case "quarantine":
            also = "".join(f", {one_line(str(one))}" for one in as_list(server.get("also")))
            line = f"in quarantine, nothing of it is shown: {told} to approve{also}"
        case "damaged":
            line = f"all of it is held back: {one_line(str(server['problem']))}"
        case _:
            line = f"{told} held back"
    sys.stdout.write(f"{name}: {line}\n")


# Definitions
# --------------------------------------------------------------------------------------------------


async def _definitions(desk: Desk, what: str, yes: bool, as_json: bool) -> int:
    server, name = await _meant(desk, what)
    answer = _good(
        await desk("pins.waiting", server=server, **({} if name is None else {"name": name}))
    )
    found = next((as_object(one) for one in as_list(answer.get("servers"))), None)
    if found is None:
        sys.stdout.write(f"{one_line(server)} is trusted as it comes: nothing of it is held back\n")
        return 0
    waiting = [as_object(one) for one in as_list(found["waiting"])]
    whole = found["state"] in ("quarantine", "damaged")
    if as_json and not yes:
        _print_json({"ok": True, **found})
        return WAITS if waiting or whole else 0
    if whole and name is not None:
        state = "in quarantine" if found["state"] == "quarantine" else "held back"
        raise ConfigError(
            [f"error: {one_line(server)} is {state} as a whole: mcpx approve {one_line(server)}"]
        )
    if not waiting and not whole:
        sys.stdout.write(f"{one_line(what)}: nothing waits\n")
        return 0
    if not as_json:
        _show(found, waiting)
    if not yes and not _agreed(what, len(waiting)):
        return WAITS
    return await _let(desk, server, [str(one["fingerprint"]) for one in waiting], whole, as_json)


async def _meant(desk: Desk, what: str) -> tuple[str, str | None]:
    """A server, or something of one: the longest name of a server that it begins with."""
    answer = await desk("pins.waiting", server=what)
    if not answer.get("unknown"):
        return what, None
    names = sorted((str(one) for one in as_list(answer.get("names"))), key=len, reverse=True)
    for name in names:
        if what.startswith(f"{name}."):
            return name, what[len(name) + 1 :]
    if re.fullmatch(r"[0-9a-f]{8}", what):
        why = (
            "it was decided, has expired (they wait for 15 minutes), or the gateway was started "
            "anew"
        )
        raise ConfigError([f"error: no call {what} waits, and no server is called so: {why}"])
    known(answer, what)
    raise AssertionError  # `known` has told


def _show(server: Json, waiting: Iterable[Json]) -> None:
    _print_server(server)
    for entry in waiting:
        some = ", only some clients are offered it" if entry.get("for_some") else ""
        sys.stdout.write(
            f"\n{thing(entry)}: {entry['how']}, held back since {local(entry['since'])}{some}\n"
        )
        print_hints(entry, "  ")
        for line in as_list(entry.get("diff")):
            sys.stdout.write(f"  {visible(str(line))}\n")
    sys.stdout.write("\n")


def _agreed(what: str, number: int) -> bool:
    if not sys.stdin.isatty() or not sys.stdout.isatty():
        sys.stdout.write(
            f"nothing was approved; to approve what is shown: mcpx approve {one_line(what)} --yes\n"
        )
        return False
    sys.stdout.write(
        f"Approve {counted(number, 'definition')} of {one_line(what)} as shown? [y/N] "
    )
    sys.stdout.flush()
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    sys.stdout.write("nothing was approved\n")
    return False


async def _let(desk: Desk, server: str, shown: list[str], whole: bool, as_json: bool) -> int:
    approved: list[Any] = []
    missing, answer = 0, Json()
    parts = [shown[at : at + AT_ONCE] for at in range(0, len(shown), AT_ONCE)] or [[]]
    for at, part in enumerate(parts):
        last = at == len(parts) - 1
        answer = await desk(
            "pins.approve", server=server, fingerprints=part, release=whole and last
        )
        approved += as_list(answer.get("approved"))
        missing += int(answer.get("missing") or 0)
        if not answer.get("ok"):
            sys.stderr.write(f"error: {one_line(server)}: {one_line(str(answer.get('error')))}\n")
            return 1
    if as_json:
        _print_json({**answer, "approved": approved, "missing": missing})
    else:
        out = ", out of quarantine" if whole else ""
        sys.stdout.write(
            f"{one_line(server)}: {counted(len(approved), 'definition')} approved{out}\n"
        )
        if missing:
            sys.stdout.write(
                f"{missing} not approved: changed again since it was shown, or gone; look again\n"
            )
    return WAITS if missing else 0


# Calls
# --------------------------------------------------------------------------------------------------


async def _decide(desk: Desk, call: Json, yes: bool, deny: bool, as_json: bool) -> int:
    if not as_json:
        _print_call(call)
    what = str(call["id"])
    if not yes and not deny and not _agreed_to_call(what):
        return WAITS
    answer = await desk("decide", id=what, allow=not deny, by="command line")
    if as_json:
        _print_json(answer)
    elif not answer.get("ok"):
        sys.stderr.write(
            f"error: {one_line(str(answer.get('error') or 'it does not wait any more'))}\n"
        )
    else:
        sys.stdout.write(f"{one_line(what)}: {'denied' if deny else 'may be made once'}\n")
    return 0 if answer.get("ok") else 1


def _agreed_to_call(what: str) -> bool:
    if not sys.stdin.isatty() or not sys.stdout.isatty():
        sys.stdout.write(
            f"nothing was decided; say: mcpx approve {one_line(what)} --yes, or --deny\n"
        )
        return False
    sys.stdout.write("Allow it, once? [y/N] ")
    sys.stdout.flush()
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    sys.stdout.write("nothing was decided; --deny refuses it\n")
    return False


def _print_call(call: Json) -> None:
    # All of it: it was shortened where it is kept, with a word for each thing left out, and the end
    # of it shown.
    arguments = call.get("arguments")  # one line of JSON already, as the gateway has it
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    shown = visible(text).replace("\n", "<U+000A>").replace("\t", "<U+0009>")
    reason = f" ({one_line(str(call['reason']))})" if call.get("reason") else ""
    until = f", until {local(call['expires_at'])}" if call.get("expires_at") else ""
    tool = one_line(f"{call.get('server')}.{call.get('tool')}")
    who = one_line(str(call.get("principal")))
    sys.stdout.write(
        f"call {one_line(str(call.get('id')))}: {who} wants {tool}{reason}{until}\n  {shown}\n"
    )


def _print_json(answer: Json) -> None:
    sys.stdout.write(json.dumps(answer, indent=2) + "\n")  # ASCII: nothing in it steers a terminal
