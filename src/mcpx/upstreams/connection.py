"""Connects one server, keeps its main link healthy, and reports why it is not connected.

`life` decides when to connect. Each attempt opens the main link, reads the lists over it, and
renews what clients have asked for. `health` looks after the open link.
"""

import asyncio
import logging
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from mcpx.base.text import cut, visible
from mcpx.config import Server
from mcpx.model.call import Caller
from mcpx.model.errors import SERVER_DOWN, SERVER_TIMEOUT, RpcError, Unavailable
from mcpx.model.events import UpstreamChanged
from mcpx.model.offer import KINDS
from mcpx.transports import downloads_itself
from mcpx.transports.dial import UNTOLD
from mcpx.transports.refusals import about_us
from mcpx.upstreams.life import ConnectFailure, ShownPhase
from mcpx.upstreams.link import Link
from mcpx.upstreams.negotiate import Terms
from mcpx.upstreams.traits import kind_of

if TYPE_CHECKING:
    from mcpx.auth import Auth
    from mcpx.auth.credentials import Credentials
    from mcpx.upstreams.signing import Signing
    from mcpx.upstreams.upstream import Upstream

log = logging.getLogger(__name__)

THRESHOLD = 3
"""Unanswered probes in a row after which the connection counts as lost."""
PATIENCE = 10.0
"""Seconds a probe may take, or the interval if that is shorter."""

Verdict = Literal["lost", "sleep", "renew"]


class HealthMonitor:
    def __init__(self, upstream: "Upstream") -> None:
        self.latency: float | None = None
        """Seconds of the last probe."""
        self._upstream = upstream
        self._watcher: asyncio.Task[None] | None = None

    def watch(self, link: Link) -> None:
        """Look after this main link from now on."""
        self.stop()
        self._watcher = self._upstream.tasks.start(self._look_after(link))

    def stop(self) -> None:
        if self._watcher is not None and self._watcher is not asyncio.current_task():
            self._watcher.cancel()  # It would keep a dead link in memory until its next probe.

    async def _look_after(self, link: Link) -> None:
        upstream = self._upstream
        verdict = await self.verdict(link)
        if not link.alive or link is not upstream.links.main:
            return
        if verdict == "lost":
            upstream.owner.lost(link, "did not answer health probes")
            return
        what = "is started anew: old or large"
        if verdict == "sleep":
            what = "goes to sleep"
        log.info("[%s] %s", upstream.name, what)
        upstream.life.connection_closed(verdict)
        await upstream.links.close()

    @property
    def server(self) -> Server:
        return self._upstream.server

    def traffic(self) -> int:
        """Grows with every call."""
        return self._upstream.calls.made

    def is_busy(self) -> bool:
        """Whether a call is running or a link is being opened."""
        return self._upstream.calls.running > 0 or self._upstream.links.opening

    def has_listeners(self) -> bool:
        """Whether clients have subscriptions, which prevent sleep and replacement."""
        return bool(self._upstream.subscriptions)

    def probed(self, latency: float | None, problem: str | None) -> None:
        """The result of a probe. Both are None if there was traffic instead."""
        life = self._upstream.life
        if latency is not None:
            self.latency = latency
        if problem is not None:
            life.set_status("degraded", problem)
        elif life.status.state == "degraded":
            life.set_status("connected")

    async def verdict(self, link: Link) -> Verdict:
        """Wait until something must be done about the connection."""
        born = heard = time.monotonic()
        calls = self.traffic()
        failures = 0
        while True:
            await asyncio.sleep(_next_look(self.server))
            if not link.alive:
                return "lost"
            server = self.server
            if self.traffic() != calls or self.is_busy():
                calls, heard, failures = self.traffic(), time.monotonic(), 0
                self.probed(None, None)
                continue
            if not self.has_listeners():
                if server.lazy and time.monotonic() - heard >= server.idle_timeout:
                    return "sleep"
                if _worn(link, server, time.monotonic() - born):
                    return "renew"
            if not server.health_check_enabled:
                continue
            began = time.monotonic()
            try:
                await link.probe(min(PATIENCE, server.health_check_interval))
            except Unavailable as error:
                if not link.alive:
                    # Lost for another reason: the probe says nothing of the next connection.
                    return "lost"
                failures += 1
                self.probed(None, error.message)
                if failures >= THRESHOLD:
                    return "lost"
                continue
            except RpcError:
                pass  # An error is an answer.
            failures = 0
            self.probed(time.monotonic() - began, None)


def _next_look(server: Server) -> float:
    looks = [server.health_check_interval]
    if server.lazy:
        looks.append(server.idle_timeout / 2)
    if server.max_age is not None:
        looks.append(server.max_age / 2)
    return max(0.05, min(looks))


def _worn(link: Link, server: Server, age: float) -> bool:
    if server.max_age is not None and age >= server.max_age:
        return True
    return server.max_memory is not None and link.memory() > server.max_memory


MAX_REASON_LENGTH = 1000
"""Characters of a server's own words that are kept as the reason why it is not connected."""
DOWNLOAD_SHOWN_AFTER = 3.0
"""Seconds without output after which a program that downloads itself is shown as downloading."""
PROOF = 5.0
"""Seconds for a sign of life from a server that did not list its tools."""


class MainConnection:
    def __init__(self, upstream: "Upstream") -> None:
        self.has_output = False
        """The process of the main link has written to standard output, so that no download runs."""
        self._upstream = upstream
        self._name = upstream.name
        self._context = upstream.context
        self._solo: Caller | None = None
        self._loop: asyncio.Task[None] | None = None
        self._is_late = False
        """The current attempt has taken longer than `DOWNLOAD_SHOWN_AFTER`."""
        self._words = ""
        """The server's last words outside of a call: as it died, or instead of an answer."""

    # Life
    # ----------------------------------------------------------------------------------------------

    def start(self, caller: Caller | None = None) -> None:
        """Connect in the background. `caller`: the one client of a stdio front, which gets the main
        link."""
        upstream, server = self._upstream, self._upstream.server
        self._solo = caller
        if self._loop is not None:
            return
        if caller is not None:
            upstream.book.serve_only(kind_of(caller.capabilities))
            if upstream.known:
                upstream.settled.set()
            elif server.enabled:
                upstream.settled.clear()
        if server.enabled:
            # A lazy server is started once to read its lists, and then only for a call.
            work = upstream.life.run(asleep=server.lazy and upstream.known)
            self._loop = upstream.tasks.start(work, apart=True)

    @property
    def is_started(self) -> bool:
        return self._loop is not None

    @property
    def solo_kind(self) -> frozenset[str]:
        return frozenset() if self._solo is None else kind_of(self._solo.capabilities)

    async def reconnect(self) -> None:
        """Connect again now. Running calls fail, and waiting calls continue to wait."""
        life = self._upstream.life
        if self._loop is None or not self._upstream.server.enabled:
            self.start(self._solo)
        elif self._loop.done() or self._loop.cancelling():
            return
        elif self._upstream.links.main is None or life.phase is not None:
            life.connect_now()
        else:
            log.info("[%s] is connected anew: somebody asked for it", self._name)
            self._upstream.health.stop()
            life.set_status("connecting")
            await self._upstream.links.close()  # Before the next link, which it would close, too.
            life.connection_closed("renew")

    def stop(self) -> None:
        if self._loop is not None:
            self._loop.cancel()

    async def wait_until_connected(self) -> None:
        """Wait, bounded, for this server only. A call makes the loop connect at once."""
        main = self._upstream.links.main
        if main is None or not main.alive:
            await self.wait_for_attempt()

    async def wait_for_attempt(self) -> None:
        self.start(self._solo)
        try:
            await self._upstream.life.wait_for_attempt()
            main = self._upstream.links.main
            if main is None or not main.alive:
                status = self._upstream.life.status
                reason = (status.last_error or "not connected").removeprefix(f"{self._name}: ")
                error = Unavailable(self._name, SERVER_DOWN, reason)
                if status.state == "needs_auth":
                    error.http_status = 401
                raise error
        except Unavailable as error:
            self.make_presentable(error)
            self.explain_sign_in(error)
            raise

    async def main_link(self) -> Link:
        """Waits for the current attempt, and wakes a sleeping server. Raises `Unavailable`."""
        links, life = self._upstream.links, self._upstream.life
        if links.main is None or not links.main.alive:
            self.start(self._solo)
            if life.status.state == "sleeping":
                await self.wait_for_attempt()
            else:
                await life.attempt_over()
        main = links.main
        if main is None or not main.alive:
            raise Unavailable(self._name, SERVER_DOWN, life.status.last_error or "not connected")
        return main

    # Attempts
    # ----------------------------------------------------------------------------------------------

    async def connect(self) -> ConnectFailure | None:
        """One attempt, for `Life`."""
        retry_after, needs_auth = None, False
        try:
            with self._download_shown():
                link = await self._open()
        except Unavailable as error:
            reason, retry_after = error.message, error.retry_after
            if self.explain_sign_in(error):
                needs_auth, reason = True, error.message
        except RpcError as error:
            reason = f"{self._name}: {cut(error.message, MAX_REASON_LENGTH)}"
        except Exception as error:
            log.exception("[%s] connecting failed", self._name)
            reason = f"{self._name}: {type(error).__name__}"
        else:
            if link.alive:
                count = len(self._upstream.definitions["tools"])
                tools = f"{count} tool{'s' * (count != 1)}"
                log.info("[%s] connected, %s, %s", self._name, link.terms.version, tools)
                self._upstream.health.watch(link)
                return None
            reason = f"{self._name}: died right after it was connected"
        reason = self.presentable(reason)
        if not self._upstream.known:
            self._upstream.kinds.given_up()
        level = logging.WARNING
        if needs_auth and reason == self._upstream.status.last_error:
            level = logging.DEBUG  # The server is asked once a minute.
        log.log(level, "[%s] %s", self._name, reason.removeprefix(f"{self._name}: "))
        return ConnectFailure(reason, needs_auth, retry_after)

    async def _open(self) -> Link:
        """Open the main link, read the lists over it, and renew subscriptions and the log level."""
        upstream = self._upstream
        self.has_output = False
        link = await upstream.links.first(self._solo)
        try:
            upstream.book.instructions = link.terms.instructions
            await link.listening.listen()
            unread = await upstream.book.read(link, KINDS, announced=False)
            if "tools" in unread:
                await self._prove_alive(link)
            await upstream.subscriptions.carry_to(link)
        except BaseException:
            await asyncio.shield(upstream.links.retire(link))
            raise
        if unread:
            upstream.tasks.start(upstream.refresh.retry(link, unread))
        return link

    async def _prove_alive(self, link: Link) -> None:
        """A server that does not list its tools may have stopped to read: probe it."""
        try:
            await link.probe(min(PROOF, self._upstream.server.timeout))
        except Unavailable:
            reason = "answers neither what it offers nor a probe"
            raise Unavailable(self._name, SERVER_TIMEOUT, reason) from None
        except RpcError:
            pass  # An error is a sign of life.

    @contextmanager
    def _download_shown(self) -> Generator[None]:
        """Reports an attempt that probably downloads the server (LIF-10)."""

        def report() -> None:
            self._is_late = True
            if self.phase == "downloading":
                told = "[%s] has no output after %g s: it is probably downloading"
                log.info(told, self._name, DOWNLOAD_SHOWN_AFTER)
                self._context.publish(UpstreamChanged(self._name))

        timer = asyncio.get_running_loop().call_later(DOWNLOAD_SHOWN_AFTER, report)
        try:
            yield
        finally:
            timer.cancel()
            self._is_late = False

    def lost(self, reason: str) -> None:
        self._upstream.health.stop()
        self._upstream.life.connection_lost(self.presentable(f"{self._name}: {reason}"))

    def renew(self) -> None:
        """Open another main link at once. The other links stay."""
        self._upstream.health.stop()
        self._upstream.life.connection_closed("renew")

    # Reasons
    # ----------------------------------------------------------------------------------------------

    def presentable(self, problem: str) -> str:
        """For users and clients. A server's words may contain anything."""
        return visible(self._context.redact(problem))

    def make_presentable(self, error: Unavailable) -> None:
        error.say(self.presentable(error.message))

    @property
    def problem(self) -> str | None:
        """The last error for the administrator, with the server's own words."""
        error = self._upstream.status.last_error
        if error is None:
            return None
        return error.replace(UNTOLD, f": {self.presentable(self._words)}")

    def confide(self, words: str) -> bool:
        """Keep words of the server for the administrator. Returns whether clients must not see
        them, because they may be about another client."""
        is_new, self._words = words != self._words, words
        apart = self._context.apart()
        if apart and is_new:
            log.warning("[%s] its last words: %s", self._name, self.presentable(words))
        return apart

    def hush(self) -> None:
        """From now on, clients must not see what the server says about other clients."""
        status, words = self._upstream.status, self.presentable(self._words)
        error = status.last_error or ""
        if words and words in error:
            error = error[: error.index(words)].rstrip(": '")
            self._upstream.life.set_status(status.state, error + UNTOLD)

    # Sign-in
    # ----------------------------------------------------------------------------------------------

    def explain_sign_in(self, error: Unavailable) -> bool:
        """Whether the server did not accept the credentials. Then the error says what to do."""
        if not about_us(error):
            return False
        signing, auth = self._upstream.signing, self._upstream.auth
        if signing is not None:
            signing.tell(error)
            return True
        what = "the Authorization header in its config"
        if auth is not None:
            what = f"its auth {auth[0]!r}"
        if what not in error.message:
            error.message = f"{error.message}; {what} is not taken"
        return True

    def sign_in_wanted(self, error: Unavailable) -> None:
        """A call was rejected without a sign-in."""
        reason = error.message
        if self.confide(reason.removeprefix(f"{self._name}: ")):
            wants = f"wants the gateway to sign in (HTTP {error.http_status})"
            reason = f"{self._name}: {wants}{UNTOLD}"
        self._upstream.life.set_status("needs_auth", reason)

    def credentials_changed(self) -> None:
        """A user has signed in or out, or has to sign in."""
        signing, life = self._upstream.signing, self._upstream.life
        if signing is None or self._loop is None:
            return
        self._context.publish(UpstreamChanged(self._name))
        if not signing.changed():
            if life.status.state == "needs_auth":
                life.set_status("needs_auth", self.presentable(signing.reason))
            return
        log.info("[%s] sign-in has changed, it is connected anew", self._name)
        main = self._upstream.links.main
        if main is not None and main.alive:
            self._upstream.owner.renew()  # The lists may differ for another user.
        else:
            life.skip_pause()

    # Status
    # ----------------------------------------------------------------------------------------------

    @property
    def phase(self) -> ShownPhase | None:
        """The step of the current attempt."""
        upstream = self._upstream
        phase = upstream.life.phase
        if phase != "starting":
            return phase
        if upstream.links.main is not None:
            return "listing"
        downloads = downloads_itself(upstream.server.connection)
        if self._is_late and downloads and not self.has_output:
            return "downloading"
        return phase

    @property
    def phase_seconds(self) -> float | None:
        """Seconds since the current attempt started the server. None if no attempt runs."""
        life = self._upstream.life
        return time.monotonic() - life.started_at if life.phase == "starting" else None

    @property
    def next_try(self) -> float | None:
        """Unix time of the next attempt. None if only a call starts one."""
        due = self._upstream.life.next_attempt_at
        return None if due is None else time.time() + max(due - time.monotonic(), 0.0)

    @property
    def terms(self) -> Terms | None:
        """The result of the handshake. None while the server is not connected."""
        main = self._upstream.links.main
        return None if main is None or not main.alive else main.terms


def address_of(server: Server) -> str:
    """The HTTP address of a server, or of a WebSocket's handshake. Empty for a program."""
    url: str = getattr(server.connection, "url", "")
    return f"http{url[2:]}" if url[:2].lower() == "ws" else url


def proofs_of(
    upstream: "Upstream", auth: "tuple[str, Auth] | None"
) -> "tuple[Credentials | None, Signing | None]":
    """The credentials of a server. They are a `Signing` if users sign in."""
    server, context = upstream.server, upstream.context
    url = address_of(server)
    if not url or context.ring is None or not server.enabled:
        return None, None
    given = None
    headers: Mapping[str, str] = getattr(server.connection, "headers", {})
    if auth is not None:
        given = context.ring().of(*auth, server.name, url)
    if given is None and any(name.lower() == "authorization" for name in headers):
        return None, None
    from mcpx.auth.credentials import signs_in  # Only for servers with an address.
    from mcpx.upstreams.signing import Signing

    if given is not None and signs_in(given) is None:
        return given, None
    signing = Signing(server.name, url, context.ring, signs_in(given), upstream.tasks, context.asks)
    return signing, signing
