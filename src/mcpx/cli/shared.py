"""The configuration in the store of all replicas (SCA-1): fetched for `mcpx --config store:`, put
there by `mcpx config push`.

Promised: what is fetched lies in the state folder, for this user alone, and is from there on the
file of a replica like any other. A store that cannot be reached is tried for a while; a replica
that has run before goes on with what it had then, also if the store was emptied, and takes up what
it missed once the store is back. A file is pushed if it is valid.
"""

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Final

from mcpx import __version__
from mcpx.base.files import private_folder, replace_private
from mcpx.cli import codes
from mcpx.cli.output import counted, plain, print_json
from mcpx.cli.running import result_of
from mcpx.cli.serve_flags import by_stdio
from mcpx.cli.target import overlay, required
from mcpx.config import load
from mcpx.config.edits import Where
from mcpx.config.files import is_base, members
from mcpx.config.source import Source
from mcpx.config.written import read_written
from mcpx.core.alone import AUTHOR
from mcpx.core.sharing import Shared, Sharing, etag_of_texts
from mcpx.model.errors import ConfigError
from mcpx.model.state import STORE, laid_down
from mcpx.replicas.address import StoreAddress, parse
from mcpx.replicas.replicas import Replicas
from mcpx.replicas.store import StoreDown
from mcpx.wire.address import BadAddress

WAIT: Final = 30.0
"""Seconds in which a store must be reached."""
WAIT_WITH_A_COPY: Final = 5.0
SAID: Final = 1.0
"""Seconds after which somebody is told what is waited for."""
TAKEN_UP: Final = 5.0
"""Seconds in which replicas are looked at, whether they have taken it up."""


def fetch(options: argparse.Namespace, environ: Mapping[str, str]) -> None:
    """What the store has, as files of this replica."""
    if by_stdio(options, environ):
        raise ConfigError(
            ["error: a config in the store is for replicas over HTTP: --transport http"]
        )
    address = _address(
        environ.get("MCPX_STORE"), "MCPX_STORE must be set, to the address of the store"
    )
    folder = Path(laid_down(STORE, environ))
    there = bool(members(folder))
    try:
        shared = result_of(_fetched(address, environ, WAIT_WITH_A_COPY if there else WAIT))
    except StoreDown as error:
        if not there:
            raise ConfigError([f"error: the config is in the store, and {error}"]) from None
        sys.stderr.write(f"mcpx: {error}; it starts with the config that it had last\n")
        return
    if shared is not None:
        _lay_down(folder, shared)
    elif there:
        sys.stderr.write(
            "mcpx: the store has no config any more; it starts with the config that it had last\n"
        )
    else:
        raise ConfigError(
            ["error: the store has no config yet; put one there: mcpx config push FILE"]
        )


async def _fetched(
    address: StoreAddress, environ: Mapping[str, str], seconds: float
) -> Shared | None:
    async with _visited(address, environ, seconds) as replicas:
        return await Sharing(replicas).read()


def _lay_down(folder: Path, shared: Shared) -> None:
    try:
        private_folder(folder)
        for name, text in shared.texts.items():
            if Path(name).name == name and not name.startswith("."):
                replace_private(folder / name, text.encode(errors="surrogatepass"))
        for file in members(folder):
            if file.name not in shared.texts:
                file.unlink(missing_ok=True)
    except OSError as error:
        told = (
            f"error: the config of the store cannot be kept in {folder}: {error.strerror or error}"
        )
        raise ConfigError([told]) from None


def push(options: argparse.Namespace) -> int:
    if options.what:
        options.config = options.what
    path, env = required(options, "config push"), overlay(options)
    config = load(path, os.environ, env)
    written = read_written(Where(path, os.environ, env))
    texts = {sheet.path.name: sheet.text for sheet in written.sheets}
    given = os.environ.get("MCPX_STORE") or config.server.store
    address = _address(given, "neither MCPX_STORE nor server.store says where the store is")
    try:
        return result_of(_push(address, texts, path, options))
    except StoreDown as error:
        sys.stderr.write(f"error: {error}\n")
        return codes.FAILED


async def _push(
    address: StoreAddress,
    texts: dict[str, str],
    path: Path,
    options: argparse.Namespace,
) -> int:
    async with _visited(address, os.environ, WAIT) as replicas:
        sharing, members = Sharing(replicas), replicas.members
        head, before = await sharing.head(), await sharing.read()
        texts = _renamed(texts, before)
        etag = etag_of_texts(texts)
        if before is not None and before.etag == etag:
            return _told(options, path, before.number, 0, changed=False)
        await members.look()
        newest = None if head is None else head[0]
        revisions = [member.revision for member in members.others.values()]
        number = max(newest or 0, *revisions, 0) + 1
        if options.dry_run:
            return _told(options, path, number, len(revisions), changed=True)
        what = f"what {path.name} says"
        made = Shared(number, etag, texts, f"{AUTHOR} (cli)", what, "cli", AUTHOR)
        if not await sharing.put(made, newest):
            raise StoreDown(
                "another change was made in the same moment; look at it, and push again"
            )
        return _told(options, path, number, await _taken_up(replicas, etag), changed=True)


def _renamed(texts: dict[str, str], before: Shared | None) -> dict[str, str]:
    """A single file takes the place of the single one that is there, whatever it is called, if it
    is of the same form. Else it has a name under which it is found in the folder where replicas lay
    it down, and is no overlay there; TOML is found in none."""
    if len(texts) != 1 or (before is not None and len(before.texts) != 1):
        return texts
    (own, text), form = next(iter(texts.items())), _form(texts)
    if before is not None and form == _form(before.texts):
        return {next(iter(before.texts)): text}
    return {own if form == "toml" or is_base(Path(own)) else f"mcpx.{form}": text}


def _form(texts: Mapping[str, str]) -> str:
    """How the single one is written."""
    name, text = next(iter(texts.items()))
    source = Source(Path(name))
    source.text = text
    return source.form


async def _taken_up(replicas: Replicas, etag: str) -> int:
    """How many run it by now."""
    deadline = monotonic() + TAKEN_UP
    while True:
        await replicas.members.look()
        there = [member for member in replicas.members.others.values() if member.etag]
        done = sum(member.etag == etag for member in there)
        if done == len(there) or monotonic() > deadline:
            return done
        await asyncio.sleep(0.05)


def _told(
    options: argparse.Namespace, path: Path, number: int, replicas: int, *, changed: bool
) -> int:
    if options.json:
        about = {"dry_run": True} if options.dry_run else {}
        print_json(
            {
                **about,
                "config": str(path),
                "changed": changed,
                "revision": number,
                "replicas": replicas,
            }
        )
    elif not changed:
        sys.stdout.write(f"revision {number} of all replicas says that already\n")
    elif options.dry_run:
        sys.stdout.write(f"{counted(replicas, 'replica')} would take it up as revision {number}\n")
    else:
        sys.stdout.write(
            f"revision {number} of all replicas says what {plain(str(path), 4096)} says\n"
        )
        sys.stdout.write(f"{counted(replicas, 'replica')} took it up\n")
    return codes.DONE


# Reaching it
# --------------------------------------------------------------------------------------------------


def _address(given: str | None, missing: str) -> StoreAddress:
    if not given:
        raise ConfigError([f"error: {missing}"])
    try:
        return parse(given)
    except BadAddress as problem:
        raise ConfigError([f"error: the address of the store: {problem}"]) from None


@asynccontextmanager
async def _visited(
    address: StoreAddress, environ: Mapping[str, str], seconds: float
) -> AsyncGenerator[Replicas]:
    """The store, for a command: it is no replica, and nobody counts on it. Raises `StoreDown`."""
    quiet = logging.NullHandler()  # what is to be said is said here
    logging.getLogger("mcpx").addHandler(quiet)
    replicas = Replicas(address, environ, __version__)
    replicas.start()
    try:
        await _join(replicas, seconds)
        yield replicas
    finally:
        await replicas.close()
        logging.getLogger("mcpx").removeHandler(quiet)


async def _join(replicas: Replicas, seconds: float) -> None:
    store, told = replicas.store, ""
    for patience in (SAID, seconds - SAID):
        try:
            async with asyncio.timeout(patience):
                await replicas.joined.wait()
            return
        except TimeoutError:
            why = "its replicas have another MCPX_KEY" if store.up else store.problem
            told = f"the store {store.address.shown} cannot be used: {why}"
            if patience == SAID:
                sys.stderr.write(f"mcpx: {told}; it is tried for {seconds:g} s\n")
    raise StoreDown(told)
