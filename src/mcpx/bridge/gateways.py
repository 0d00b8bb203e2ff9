"""Finding the gateway that runs on a configuration, or starting one: what a bridge does before it
carries anything.

Promise: two that look at once start one; whoever loses the race attaches to the winner's. A gateway
that does not answer, is of another version or lives in another environment is left alone, and the
reason told. All of it takes bounded time. Blocks; a bridge that is busy has it done in a thread.

Not done here: what to do when there is none (`cli.attach`, `bridge.relay`).
"""

import contextlib
import json
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from mcpx import __version__
from mcpx.base.files import FileLock
from mcpx.wire import channels

ANSWER = 5.0
"""Seconds a gateway has to say yes or no; they say it in a millisecond."""
START = 30.0
"""Seconds one has to start: it reads a file, and starts no server before it is ready."""
SEARCH = 60.0
"""Seconds for all of it."""
TRIES = 5
"""So often one that was there may be gone at the next look."""
PAUSE = 0.05
LONGEST_ANSWER = 1 << 20
SAID_SO = ("mode", "profile", "strict")
"""Reasons of a refusal that hold for a gateway of the client's own as well."""
READY = b'{"jsonrpc":"2.0","id":"mcpx-bridge/ready","method":"ping"}\n'
TAIL = 2_000
"""Bytes of the log that are told when a start failed."""
FULL = 10 << 20
"""Bytes of a log that is put aside before another gateway writes to it."""


class Wanted(NamedTuple):
    """Which gateway, for which client."""

    place: Path
    """Of the control channel."""
    mode: str | None
    profile: str | None
    strict: bool
    environ: Mapping[str, str]
    serve: Sequence[str]
    """Arguments of `mcpx serve` for a gateway on this configuration."""
    linger: float
    folder: Path
    """Where a gateway in the background runs: that of the configuration, whoever starts it."""


class Attachment(NamedTuple):
    """A connection on which a client talks from now on."""

    connected: socket.socket
    about: Mapping[str, Any]
    """What the gateway says of itself."""
    own: Any = None
    """The process, where it is this client's alone."""


class Refused(NamedTuple):
    """There is one, and it is not for this client; or none could be had."""

    reason: str
    error: str


class _Nobody(NamedTuple):
    """No one is there, or who was there is leaving."""


NOBODY = _Nobody()


def find(wanted: Wanted) -> Attachment | Refused:
    """The gateway for a client, running or started here."""
    deadline = time.monotonic() + SEARCH
    failed: Refused | None = None
    for _ in range(TRIES):
        found = _attach(wanted)
        if not isinstance(found, _Nobody):
            return found
        if failed is not None or time.monotonic() > deadline:
            break
        failed = _start(wanted, deadline)
    return failed or Refused("start", "gateways that were started ended at once")


def find_running(wanted: Wanted) -> Attachment | Refused | None:
    """The same, without starting one."""
    found = _attach(wanted)
    return None if isinstance(found, _Nobody) else found


def _attach(wanted: Wanted) -> Attachment | Refused | _Nobody:
    request: dict[str, Any] = {
        "do": "attach",
        "version": __version__,
        "mode": wanted.mode,
        "profile": wanted.profile,
        "pid": os.getpid(),
        "moves": True,
        "strict": wanted.strict,
        "environ": told(wanted.environ),
    }
    asked = _ask(wanted.place, request)
    if isinstance(asked, (Refused, _Nobody)):
        return asked
    connected, answer = asked
    if answer.get("ok") is True:
        return Attachment(connected, answer)
    connected.close()
    reason, error = answer.get("reason"), str(answer.get("error"))
    if reason in ("alone", "ending"):
        return NOBODY
    if reason is None:  # from before there was such a thing
        return Refused("version", "the gateway that runs is an older mcpx")
    if reason == "version" and answer.get("role") == "background" and answer.get("clients") == 0:
        retired = _ask(wanted.place, {"do": "retire"})
        if not isinstance(retired, Refused):
            if not isinstance(retired, _Nobody):
                retired[0].close()
            return NOBODY
    return Refused(str(reason), error)


def _ask(
    place: Path, request: Mapping[str, Any]
) -> tuple[socket.socket, dict[str, Any]] | Refused | _Nobody:
    """One request, and the connection it was answered on."""
    try:
        connected = channels.dial(place, ANSWER)
    except TimeoutError:
        return _SILENT
    except OSError:
        return NOBODY
    try:
        answer = json.loads(_exchange(connected, json.dumps(request).encode() + b"\n", ANSWER))
        if not isinstance(answer, dict):
            raise ValueError
        return connected, cast(dict[str, Any], answer)
    except TimeoutError:
        connected.close()
        return _SILENT
    except OSError:
        connected.close()
        return NOBODY
    except ValueError:
        connected.close()
        return Refused("garbage", "what runs there does not talk like a gateway")
    except BaseException:
        connected.close()
        raise


def _exchange(connected: socket.socket, line: bytes, seconds: float) -> bytes:
    """The line that answers one. Raises OSError; a timeout is one, and so is the end."""
    connected.settimeout(seconds)
    connected.sendall(line)
    heard = bytearray()
    while not heard.endswith(b"\n"):  # nothing follows before we say something
        piece = connected.recv(65536)
        if not piece:
            raise ConnectionResetError
        heard += piece
        if len(heard) > LONGEST_ANSWER:
            raise ValueError
    return bytes(heard)


_SILENT = Refused("silent", "the gateway that runs does not answer")


def told(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment as it travels: what is not UTF-8 has no place in JSON."""
    return {_plain(name): _plain(value) for name, value in environ.items()}


def _plain(text: str) -> str:
    return os.fsencode(text).decode("utf-8", "backslashreplace")


def _start(wanted: Wanted, deadline: float) -> Refused | None:
    """Start one in the background, unless somebody else is at it. None: one should be there."""
    lock = FileLock(wanted.place.with_suffix(".lock"))
    try:
        with contextlib.suppress(OSError):  # Without a lock, the first process to bind wins.
            lock.acquire(max(0.0, min(START, deadline - time.monotonic())))
        there = _ask(wanted.place, {"do": "status"})
        if isinstance(there, Refused):
            return there
        if not isinstance(there, _Nobody):
            there[0].close()
            # Somebody was quicker. But one client's own gateway makes way for the one that all
            # share.
            if there[1].get("role") != "alone":
                return None
        return _spawn(wanted, lock)
    finally:
        lock.release()


def _spawn(wanted: Wanted, lock: FileLock) -> Refused | None:
    from subprocess import DEVNULL, PIPE, Popen

    log_file = log_of(wanted.place)
    try:
        log = _open_log(log_file)
    except OSError as error:
        return Refused("state", f"{log_file}: {error.strerror or error}")
    began = os.fstat(log).st_size
    passed = () if lock.fd is None or os.name != "posix" else (lock.fd,)
    command = [sys.executable, "-P", "-m", "mcpx.cli.background", "--log-file", str(log_file)]
    command += [
        "--linger",
        str(wanted.linger),
        *(f"--lock={handle}" for handle in passed),
        *wanted.serve,
    ]
    more: dict[str, Any] = {"start_new_session": True, "pass_fds": passed}
    if os.name != "posix":
        more = {
            "creationflags": 0x00000008 | 0x00000200
        }  # without a console, in a group of its own
    try:
        child = Popen(
            command,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=log,
            cwd=wanted.folder,
            env=dict(wanted.environ),
            **more,
        )
    except OSError as error:  # the folder of the config may be gone
        return Refused(
            "start",
            f"it cannot be started: {error.filename or sys.executable}: {error.strerror or error}",
        )
    finally:
        os.close(log)
    assert child.stdout is not None
    with child.stdout:
        ready = _first_line(child.stdout.fileno(), START)
    if os.name == "posix":
        child.wait()  # it has left a child of its own behind, which is nobody's
    if ready == b"ready":
        return None
    if ready is None:
        return Refused("start", f"it was not ready within {START:.0f} s; its log is {log_file}")
    return Refused("start", _tail(log_file, began) or f"it ended at once; its log is {log_file}")


def _first_line(handle: int, seconds: float) -> bytes | None:
    """What is said on a pipe; None: nothing in that time."""
    if os.name != "posix":
        return os.read(
            handle, 64
        ).strip()  # nothing there can wait for a pipe, and it ends with its process
    import select

    poll = select.poll()
    poll.register(handle, select.POLLIN)
    if not poll.poll(seconds * 1000):
        return None
    return os.read(handle, 64).strip()


def log_of(place: Path) -> Path:
    """Where the gateway in the background writes."""
    return place.parent.parent / "logs" / f"gateway-{place.stem}.log"


def _open_log(file: Path) -> int:
    from mcpx.base.files import private_folder

    private_folder(file.parent)
    try:
        if os.stat(file).st_size > FULL:
            os.replace(file, f"{file}.1")
    except FileNotFoundError:
        pass
    return os.open(
        file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0), 0o600
    )


def _tail(file: Path, since: int) -> str:
    """What it said before it ended."""
    try:
        with open(file, "rb") as opened:
            opened.seek(max(since, os.fstat(opened.fileno()).st_size - TAIL))
            return opened.read(TAIL).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def own(wanted: Wanted) -> Attachment | Refused:
    """A gateway for this client alone, once it answers: where the shared one is not for it, or is
    no more. What is wrong with the configuration it says itself, in the client's log."""
    from subprocess import Popen

    ours, theirs = socket.socketpair()
    try:
        more = ["--standalone", "--transport", "stdio"]
        more += ["--mode", wanted.mode] if wanted.mode else []
        more += ["--profile", wanted.profile] if wanted.profile else []
        command = [sys.executable, "-P", "-m", "mcpx", "serve", *wanted.serve, *more]
        child = Popen(
            command, stdin=theirs.fileno(), stdout=theirs.fileno(), env=dict(wanted.environ)
        )
    except OSError as error:
        ours.close()
        return Refused("start", f"it cannot be started: {error.strerror or error}")
    finally:
        theirs.close()
    try:
        _exchange(ours, READY, START)
    except (OSError, ValueError) as error:
        ours.close()
        if isinstance(error, TimeoutError):
            child.kill()  # it is nobody's, and would read our end no sooner than it answered
        return Refused(
            "start", f"a gateway of its own could not be started (exit code {child.wait()})"
        )
    return Attachment(ours, {"role": "alone"}, child)
