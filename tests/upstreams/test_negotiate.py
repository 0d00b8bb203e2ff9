"""Which era a server speaks, found out from servers that say so, refuse, stay mute, or die of the
question."""

import asyncio
import gc
from typing import Any

import pytest

from kit.loop import closing, never_return, run, yield_to_loop
from kit.server import ScriptedConnection, ScriptedServer
from kit.until import until
from mcpx.model.call import Json
from mcpx.model.errors import (
    METHOD_NOT_FOUND,
    SERVER_DIED,
    SERVER_DOWN,
    SERVER_GARBAGE,
    SERVER_TIMEOUT,
    UNSUPPORTED_VERSION,
    RpcError,
    Unavailable,
)
from mcpx.transports.dial import Dial
from mcpx.upstreams import negotiate as module
from mcpx.upstreams.negotiate import Deadline, Era, Identity, Terms, is_refusal, negotiate
from mcpx.wire import era

WHO = Identity({"name": "me"}, {"roots": {}}, "2025-06-18")
MODERN_FIRST: tuple[Era, Era] = ("modern", "older")
OLDER_FIRST: tuple[Era, Era] = ("older", "modern")


def within(seconds: float) -> Deadline:
    return Deadline(seconds, seconds)


class Nobody:
    async def request(self, message: Json) -> Json:
        return {}

    def notification(self, method: str, params: Json) -> None:
        pass

    def closed(self, reason: str) -> None:
        pass


async def opened(toy: ScriptedServer) -> ScriptedConnection:
    return await toy.open(Dial("srv", Nobody(), 5.0, 1 << 20, {}, {}))


async def agreed(
    toy: ScriptedServer, openings: tuple[Era, ...] = MODERN_FIRST, timeout: float = 5.0
) -> tuple[Terms, ScriptedConnection]:
    line = await opened(toy)
    async with closing(line):
        terms = await negotiate("srv", line, openings, WHO, within(timeout))
        await yield_to_loop()
    return terms, line


def refusing(code: int = METHOD_NOT_FOUND, data: Any = None):
    async def refuse(line: ScriptedConnection, params: Json) -> Json:
        raise RpcError(code, "refused", data)

    return refuse


def test_a_modern_server_is_greeted_with_one_question() -> None:
    async def main() -> None:
        async def discover(line: ScriptedConnection, params: Json) -> Json:
            return {
                "supportedVersions": ["2026-07-28", "2030-01-01"],
                "capabilities": {"tools": {"listChanged": True}},
                "instructions": "be kind",
                "_meta": {era.SERVER_KEY: {"name": "s"}},
            }

        terms, line = await agreed(ScriptedServer(answers={"server/discover": discover}))
        assert terms == Terms(
            "2026-07-28", True, {"tools": {"listChanged": True}}, "be kind", {"name": "s"}
        )
        [(method, params)] = line.heard
        assert method == "server/discover"
        assert params["_meta"] == {
            era.VERSION_KEY: "2026-07-28",
            era.CLIENT_KEY: {"name": "me"},
            era.CAPABILITIES_KEY: {"roots": {}},
        }

    run(main())


def test_an_older_server_refuses_the_probe_and_gets_the_handshake() -> None:
    """SRC-2: in the revision of whoever is behind us."""

    async def main() -> None:
        terms, line = await agreed(ScriptedServer("older"))
        assert (terms.version, terms.modern, terms.server) == ("2025-06-18", False, {"name": "toy"})
        assert line.methods() == ["server/discover", "initialize", "notifications/initialized"]
        params = dict(line.heard)["initialize"]
        assert params == {
            "protocolVersion": "2025-06-18",
            "capabilities": {"roots": {}},
            "clientInfo": {"name": "me"},
        }

    run(main())


@pytest.mark.parametrize("version", era.OLDER)
def test_any_older_revision_a_server_answers_with_is_taken(version: str) -> None:
    """SRC-2."""

    async def main() -> None:
        async def initialize(line: ScriptedConnection, params: Json) -> Json:
            return {
                "protocolVersion": version,
                "capabilities": None,
                "instructions": 5,
                "serverInfo": "x",
            }

        terms, _ = await agreed(ScriptedServer(answers={"initialize": initialize}), ("older",))
        assert terms == Terms(version, False, {}, "", {})

    run(main())


@pytest.mark.parametrize(
    "code", [METHOD_NOT_FOUND, UNSUPPORTED_VERSION, -32602, -32600, -32603, -32000, 1]
)
def test_any_refusal_of_the_probe_leads_to_the_handshake(code: int) -> None:
    async def main() -> None:
        terms, _ = await agreed(ScriptedServer(answers={"server/discover": refusing(code)}))
        assert not terms.modern

    run(main())


@pytest.mark.parametrize(
    "versions", [None, [], "2026-07-28", ["2025-11-25"], [5, None], {"2026-07-28": 1}]
)
def test_a_probe_answered_without_a_version_of_ours_leads_to_the_handshake(versions: Any) -> None:
    async def main() -> None:
        async def discover(line: ScriptedConnection, params: Json) -> Json:
            return {"supportedVersions": versions}

        terms, _ = await agreed(ScriptedServer(answers={"server/discover": discover}))
        assert not terms.modern

    run(main())


def test_a_refusal_that_names_our_version_is_asked_once_more() -> None:
    """-32022 with the very version we asked in."""

    async def main() -> None:
        asked: list[int] = []

        async def discover(line: ScriptedConnection, params: Json) -> Json:
            asked.append(1)
            if len(asked) == 1:
                raise RpcError(
                    UNSUPPORTED_VERSION,
                    "no",
                    {"supported": ["2026-07-28"], "requested": "2026-07-28"},
                )
            return {"supportedVersions": ["2026-07-28"], "capabilities": {}}

        terms, _ = await agreed(ScriptedServer(answers={"server/discover": discover}))
        assert terms.modern
        assert len(asked) == 2

    run(main())


def test_a_server_that_always_refuses_the_version_it_names_is_asked_twice_and_no_more() -> None:
    async def main() -> None:
        answers = {"server/discover": refusing(UNSUPPORTED_VERSION, {"supported": ["2026-07-28"]})}
        terms, line = await agreed(ScriptedServer(answers=answers))
        assert not terms.modern
        assert line.methods().count("server/discover") == 2

    run(main())


def test_a_mute_probe_costs_the_probe_and_not_the_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PROBE", 0.03)

    async def main() -> None:
        terms, line = await agreed(
            ScriptedServer(answers={"server/discover": never_return}), timeout=600.0
        )
        assert not terms.modern
        assert line.methods()[:2] == ["server/discover", "initialize"]
        # The probe is given up in words, so that the server need not keep it.
        assert len(line.cancelled) == 1

    run(main())


def test_the_probe_may_be_answered_late_and_still_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PROBE", 0.02)

    async def main() -> None:
        initialized = asyncio.Event()

        async def discover(line: ScriptedConnection, params: Json) -> Json:
            await initialized.wait()
            return {"supportedVersions": ["2026-07-28"], "capabilities": {}}

        async def initialize(line: ScriptedConnection, params: Json) -> Json:
            initialized.set()
            return await never_return()

        terms, line = await agreed(
            ScriptedServer(answers={"server/discover": discover, "initialize": initialize})
        )
        assert terms.modern
        assert "notifications/initialized" not in line.methods()
        assert "notifications/cancelled" not in line.methods()  # initialize is not to be cancelled

    run(main())


@pytest.mark.parametrize("refused", ["server/discover", "initialize"])
def test_two_answers_at_the_same_moment_are_one_agreement(
    monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    """The success counts, and the refusal beside it is forgotten without a trace."""
    monkeypatch.setattr(module, "PROBE", 0.01)

    async def main() -> None:
        both = asyncio.Event()

        class Talk(Scripted):
            async def request(self, method: str, params: Json, **_: Any) -> Json:
                if method == "initialize":
                    asyncio.get_running_loop().call_soon(both.set)
                await both.wait()
                if method == refused:
                    raise RpcError(METHOD_NOT_FOUND, "no")
                return {"protocolVersion": "2025-11-25", "supportedVersions": ["2026-07-28"]}

        for _ in range(10):
            both.clear()
            terms = await negotiate("srv", Talk(), MODERN_FIRST, WHO, within(5.0))
            assert terms.modern == (refused == "initialize")
        gc.collect()  # where a task with an error that nobody took complains

    run(main())


def test_a_server_that_is_mute_to_everything_costs_the_time_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """LIF-6 and SRC-8."""
    monkeypatch.setattr(module, "PROBE", 0.01)

    async def main() -> None:
        toy = ScriptedServer(answers={"server/discover": never_return, "initialize": never_return})
        with pytest.raises(Unavailable, match=r"^srv: .*within 0\.2 s"):
            await agreed(toy, timeout=0.2)

    run(main())


def test_a_server_that_dies_of_the_probe_says_so() -> None:
    async def main() -> None:
        async def discover(line: ScriptedConnection, params: Json) -> Json:
            line.die("the process exited with code 1")
            return await never_return()

        with pytest.raises(Unavailable, match="code 1") as caught:
            await agreed(ScriptedServer(answers={"server/discover": discover}))
        assert caught.value.code == SERVER_DIED

    run(main())


def test_a_refused_handshake_is_told_in_the_servers_own_words() -> None:
    async def main() -> None:
        toy = ScriptedServer(answers={"initialize": refusing(-32050, {"why": 1})})
        with pytest.raises(RpcError, match="refused") as caught:
            await agreed(toy, ("older",))
        assert (caught.value.code, caught.value.data) == (-32050, {"why": 1})

    run(main())


def test_refused_on_both_the_handshakes_refusal_is_told_unless_only_the_probe_says_which_versions_there_are() -> (
    None
):
    async def main() -> None:
        async def told(probe: int, handshake: int) -> list[int]:
            codes: list[int] = []
            for openings in (MODERN_FIRST, OLDER_FIRST):
                answers = {"server/discover": refusing(probe), "initialize": refusing(handshake)}
                with pytest.raises(RpcError) as caught:
                    await agreed(ScriptedServer(answers=answers), openings)
                codes.append(caught.value.code)
            return codes

        assert await told(-1, -2) == [-2, -2]
        assert await told(-1, UNSUPPORTED_VERSION) == [UNSUPPORTED_VERSION] * 2
        assert await told(UNSUPPORTED_VERSION, METHOD_NOT_FOUND) == [UNSUPPORTED_VERSION] * 2
        assert await told(UNSUPPORTED_VERSION, -2) == [-2, -2]

    run(main())


@pytest.mark.parametrize("version", [None, "2026-07-28", "1999-01-01", 5, []])
def test_a_handshake_answered_in_a_revision_nobody_speaks_is_refused(version: Any) -> None:
    async def main() -> None:
        async def initialize(line: ScriptedConnection, params: Json) -> Json:
            return {"protocolVersion": version, "capabilities": {}}

        with pytest.raises(RpcError) as caught:
            await agreed(ScriptedServer(answers={"initialize": initialize}), ("older",))
        assert caught.value.code == UNSUPPORTED_VERSION

    run(main())


def test_a_modern_only_server_asked_in_the_older_way_first_is_found_out_at_once() -> None:
    async def main() -> None:
        terms, line = await agreed(ScriptedServer("modern"), OLDER_FIRST)
        assert terms.modern
        assert line.methods() == ["initialize", "server/discover"]

    run(main())


def test_an_http_refusal_is_a_refusal_too() -> None:
    async def main() -> None:
        talk = Scripted(
            discover=answered(400), initialize={"protocolVersion": "2025-03-26", "capabilities": {}}
        )
        terms = await negotiate("srv", talk, MODERN_FIRST, WHO, within(5.0))
        assert terms.version == "2025-03-26"

    run(main())


def test_a_cancelled_negotiation_leaves_nothing_running() -> None:
    async def main() -> None:
        toy = ScriptedServer(answers={"server/discover": never_return})
        line = await opened(toy)
        async with closing(line):
            task = asyncio.create_task(negotiate("srv", line, MODERN_FIRST, WHO, within(5.0)))
            await until(lambda: line.heard)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await until(lambda: line.cancelled)

    run(main())


class Scripted:
    """A conversation whose every answer is set: a result, or an error to raise; what was asked is
    kept."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {
            "server/discover": answers.get("discover"),
            "initialize": answers.get("initialize"),
        }
        self.asked: list[str] = []

    async def request(self, method: str, params: Json, **_: Any) -> Json:
        self.asked.append(method)
        answer = self.answers[method]
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, dict) else await never_return()

    def notify(self, method: str, params: Json | None) -> None:
        pass

    def agreed(self, version: str) -> None:
        pass

    def memory(self) -> int:
        return 0

    async def close(self) -> None:
        pass


def answered(status: int, retry_after: float | None = None) -> Unavailable:
    error = Unavailable("srv", SERVER_DOWN, f"answered with HTTP {status}", http_status=status)
    error.retry_after = retry_after
    return error


OLDER_GREETING: Json = {"protocolVersion": "2025-06-18", "capabilities": {}}
MODERN_GREETING: Json = {"supportedVersions": ["2026-07-28"], "capabilities": {}}


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("openings", [MODERN_FIRST, OLDER_FIRST])
def test_a_server_that_is_busy_at_the_opening_is_not_asked_anything_else(
    status: int, openings: tuple[Era, ...]
) -> None:
    """LIF-4: it is asked again when it wants to be, and nothing is concluded about what it
    speaks."""

    async def main() -> None:
        busy = answered(status, 7.0)
        talk = Scripted(discover=busy, initialize=busy)
        with pytest.raises(Unavailable) as caught:
            await negotiate("srv", talk, openings, WHO, within(5.0))
        assert len(talk.asked) == 1
        assert caught.value.passing
        assert caught.value.retry_after == 7.0
        assert not is_refusal(caught.value)

    run(main())


def test_a_probe_that_failed_only_for_now_does_not_mean_that_the_server_is_older() -> None:
    async def main() -> None:
        terms = await negotiate(
            "srv",
            Scripted(discover=answered(500), initialize=OLDER_GREETING),
            MODERN_FIRST,
            WHO,
            within(5.0),
        )
        assert (terms.modern, terms.refused) == (False, frozenset())
        terms = await negotiate(
            "srv",
            Scripted(discover=answered(404), initialize=OLDER_GREETING),
            MODERN_FIRST,
            WHO,
            within(5.0),
        )
        assert (terms.modern, terms.refused) == (False, {"modern"})
        terms = await negotiate(
            "srv",
            Scripted(discover=MODERN_GREETING, initialize=answered(502)),
            OLDER_FIRST,
            WHO,
            within(5.0),
        )
        assert (terms.modern, terms.refused) == (True, frozenset())

    run(main())


def test_an_opening_that_was_passed_over_in_silence_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PROBE", 0.01)

    async def main() -> None:
        terms = await negotiate(
            "srv", Scripted(initialize=OLDER_GREETING), MODERN_FIRST, WHO, within(5.0)
        )
        assert (terms.modern, terms.refused) == (False, {"modern"})

    run(main())


def test_an_opening_that_only_came_too_late_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PROBE", 0.01)

    async def main() -> None:
        both = asyncio.Event()

        class Late(Scripted):
            async def request(self, method: str, params: Json, **_: Any) -> Json:
                if method == "initialize":
                    both.set()
                    return await never_return()
                await both.wait()
                return MODERN_GREETING

        terms = await negotiate("srv", Late(), MODERN_FIRST, WHO, within(5.0))
        assert (terms.modern, terms.refused) == (True, frozenset())

    run(main())


@pytest.mark.parametrize(
    "probe",
    [
        *(RpcError(METHOD_NOT_FOUND, "no"), RpcError(UNSUPPORTED_VERSION, "no")),
        *(answered(404), answered(500), answered(400)),
    ],
)
@pytest.mark.parametrize(
    "handshake",
    [
        RpcError(-32050, "the licence has run out"),
        answered(400),
        answered(401),
        answered(404),
        answered(502),
    ],
)
def test_a_failed_handshake_is_told_with_its_own_error(
    probe: RpcError, handshake: RpcError
) -> None:
    """SRC-8."""

    async def main() -> None:
        with pytest.raises(RpcError) as caught:
            await negotiate(
                "srv",
                Scripted(discover=probe, initialize=handshake),
                MODERN_FIRST,
                WHO,
                within(5.0),
            )
        assert caught.value is handshake

    run(main())


@pytest.mark.parametrize(
    "handshake", [RpcError(METHOD_NOT_FOUND, "no"), RpcError(UNSUPPORTED_VERSION, "no")]
)
def test_a_modern_server_whose_probe_failed_for_now_is_told_with_that(handshake: RpcError) -> None:
    async def main() -> None:
        for probe in (answered(500), Unavailable("srv", SERVER_DIED, "the connection broke")):
            with pytest.raises(Unavailable) as caught:
                await negotiate(
                    "srv",
                    Scripted(discover=probe, initialize=handshake),
                    MODERN_FIRST,
                    WHO,
                    within(5.0),
                )
            assert caught.value is probe
            assert caught.value.passing

    run(main())


def test_what_failed_for_now_on_both_keeps_the_longer_wish() -> None:
    async def main() -> None:
        talk = Scripted(discover=answered(500), initialize=answered(503, 9.0))
        with pytest.raises(Unavailable) as caught:
            await negotiate("srv", talk, MODERN_FIRST, WHO, within(5.0))
        assert (caught.value.http_status, caught.value.retry_after, caught.value.passing) == (
            503,
            9.0,
            True,
        )

    run(main())


@pytest.mark.parametrize(
    ("error", "refusal"),
    [
        *((answered(status), True) for status in (400, 404, 405, 406, 410, 415, 422, 501)),
        *(
            (answered(status), False)
            for status in (401, 403, 407, 408, 425, 429, 500, 502, 503, 504, 307)
        ),
        (RpcError(METHOD_NOT_FOUND, "no"), True),
        (Unavailable("srv", SERVER_DOWN, "cannot connect"), False),
        (Unavailable("srv", SERVER_DIED, "died"), False),
        (Unavailable("srv", SERVER_TIMEOUT, "mute"), False),
        (Unavailable("srv", SERVER_GARBAGE, "a login page"), False),
    ],
)
def test_only_what_will_not_change_means_not_this_era(error: RpcError, refusal: bool) -> None:
    assert is_refusal(error) is refusal
    own = RpcError(-32603, "Internal error")
    own.http_status = error.http_status
    if error.http_status is not None and error.http_status >= 400:
        assert (
            is_refusal(own) is refusal
        )  # also when the server put an error of its own into the body
