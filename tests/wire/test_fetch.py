"""Requests to anywhere, against servers that behave, redirect, lie, burst and stall."""

import asyncio
import gzip
import ssl
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any

import pytest
import uvloop

from kit.until import until
from mcpx.wire import fetch as fetching
from mcpx.wire import http_client
from mcpx.wire.fetch import Answer, Fetch, Fetcher, FetchFailed
from mcpx.wire.reach import Guard
from wire.test_http_client import certificate, proxy_script, read_request

Run = Callable[[Coroutine[Any, Any, None]], None]
Script = Callable[["Visit"], Awaitable[None]]

HERE, ABROAD = "127.0.0.1", "127.0.0.2"
"""Both are this machine; in these tests the second counts as public."""


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    def on(main: Coroutine[Any, Any, None]) -> None:
        surprises: list[str] = []

        async def watched() -> None:
            asyncio.get_running_loop().set_exception_handler(
                lambda _, context: surprises.append(str(context))
            )
            await asyncio.wait_for(main, 30)

        factory = uvloop.new_event_loop if request.param == "uvloop" else None
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(watched())
        assert surprises == []

    return on


class Visit:
    """One connection to a server of a test."""

    def __init__(
        self, site: "Site", reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.site, self.reader, self.writer = site, reader, writer

    async def request(self) -> bytes:
        request = await read_request(self.reader)
        self.site.requests.append(request)
        return request

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    def answer(self, body: bytes = b"", status: int = 200, **headers: str) -> None:
        lines = [f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items()]
        if "content_length" not in headers:
            lines.append(f"content-length: {len(body)}\r\n")
        self.write(f"HTTP/1.1 {status} X\r\n{''.join(lines)}\r\n".encode() + body)


class Site:
    """A server: what it was asked, and who is connected."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.visits = 0
        self.open = 0
        self.port = 0

    def url(self, path: str = "/", host: str = HERE, scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"


@asynccontextmanager
async def serving(
    script: Script, *, ssl_context: ssl.SSLContext | None = None, host: str = ""
) -> AsyncIterator[Site]:
    """A server that runs `script` for each connection."""
    site = Site()
    tasks: set[asyncio.Task[Any]] = set()

    async def on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        site.visits += 1
        site.open += 1
        try:
            await script(Visit(site, reader, writer))
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        except RuntimeError:  # what uvloop says of a transport that is closed already
            if not writer.transport.is_closing():
                raise
        finally:
            site.open -= 1
            writer.close()

    server = await asyncio.start_server(on, host or "0.0.0.0", 0, ssl=ssl_context)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def fetcher(names: dict[str, Any] | None = None, **options: Any) -> AsyncIterator[Fetcher]:
    """With a name system of its own; a list of lists is what it says one time after the other."""

    async def look_up(host: str) -> list[str]:
        found = (names or {}).get(host)
        if found is None:
            raise OSError("Name or service not known")
        return found.pop(0) if isinstance(found[0], list) else found

    def may(address: IPv4Address | IPv6Address) -> bool:
        return str(address) == ABROAD

    made = Fetcher(options.pop("environ", {}), guard=Guard(look_up, may), **options)
    try:
        yield made
    finally:
        await made.close()


def answering(**answer: Any) -> Script:
    async def script(visit: Visit) -> None:
        while True:
            await visit.request()
            visit.answer(**answer)

    return script


def saying(*pieces: bytes, then_close: bool = False) -> Script:
    """The same bytes to everybody."""

    async def script(visit: Visit) -> None:
        await visit.request()
        for piece in pieces:
            visit.write(piece)
            await visit.writer.drain()
        if not then_close:
            await visit.reader.read()

    return script


async def fails(fetcher: Fetcher, request: Fetch) -> FetchFailed:
    with pytest.raises(FetchFailed) as raised:
        await fetcher.fetch(request)
    for word in ("SECRET", "query"):
        assert word not in f"{raised.value}{raised.value!r}{raised.value.__cause__}"
    return raised.value


def local(site: Site, path: str = "/", **fields: Any) -> Fetch:
    return Fetch(url=site.url(path), allow_private=True, **fields)


# --- requests and answers


def test_a_request_is_sent_and_answered(run: Run) -> None:
    async def main() -> None:
        script = answering(body=b'{"a": 1}', status=201, content_type="application/json", x_a="b")
        async with serving(script) as site, fetcher() as web:
            headers = (("Content-Type", "text/plain"), ("X-Key", "välue\t1"))
            answer = await web.fetch(
                local(site, "/a%20b?q=ü&r=1#part", method="POST", headers=headers, body=b"hello")
            )
            assert (answer.status, answer.body, answer.headers.get("x-a")) == (
                201,
                b'{"a": 1}',
                "b",
            )
            assert "q=" in answer.url
            head, _, body = site.requests[0].partition(b"\r\n\r\n")
            assert body == b"hello"
            lines = head.split(b"\r\n")
            assert lines[0] == b"POST /a%20b?q=%C3%BC&r=1 HTTP/1.1"
            assert sorted(lines[1:]) == sorted(
                [
                    b"host: 127.0.0.1:%d" % site.port,
                    b"Content-Type: text/plain",
                    "X-Key: välue\t1".encode("latin-1"),
                    b"user-agent: mcpx/" + fetching.__version__.encode(),
                    b"accept: */*",
                    b"accept-encoding: gzip, deflate",
                    b"content-length: 5",
                ]
            )
            given = (("User-Agent", "me"), ("Accept", "a/b"), ("Accept-Encoding", "identity"))
            await web.fetch(local(site, headers=given))
            head = site.requests[1].lower()
            assert head.startswith(b"get / http/1.1")
            assert [
                head.count(name) for name in (b"user-agent:", b"accept:", b"accept-encoding:")
            ] == [1, 1, 1]

    run(main())


def test_a_connection_is_used_again_and_idle_origins_are_let_go(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "MOST_POOLS", 2)

    async def main() -> None:
        async with (
            serving(answering()) as one,
            serving(answering()) as two,
            serving(answering()) as three,
        ):
            async with fetcher() as web:
                for _ in range(5):
                    await web.fetch(local(one))
                assert (one.visits, one.open) == (1, 1)
                await web.fetch(local(two))
                await web.fetch(local(one))
                await web.fetch(local(three))
                await until(lambda: (one.open, two.open, three.open) == (1, 0, 1))
                await web.fetch(local(two))
                await until(lambda: (one.open, two.open, three.open) == (0, 1, 1))
            await until(lambda: two.open == three.open == 0)

    run(main())


def test_an_origin_in_use_is_not_let_go(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "MOST_POOLS", 1)

    async def main() -> None:
        go_on = asyncio.Event()

        async def slow(visit: Visit) -> None:
            await visit.request()
            await go_on.wait()
            visit.answer(b"late")

        async with serving(slow) as one, serving(answering()) as two, fetcher() as web:
            waiting = asyncio.create_task(web.fetch(local(one)))
            await until(lambda: one.requests)
            await web.fetch(local(two))
            go_on.set()
            assert (await waiting).body == b"late"

    run(main())


@pytest.mark.parametrize(
    "fields",
    [
        {"headers": (("x-a", "b\r\nevil: 1"),)},
        {"headers": (("x-a", "b\nevil: 1"),)},
        {"headers": (("x-a", "b\rc"),)},
        {"headers": (("x-a", "b\0c"),)},
        {"headers": (("x-a", "€"),)},
        {"headers": (("x a", "b"),)},
        {"headers": (("x-a: 1\r\nevil", "b"),)},
        {"headers": (("", "b"),)},
        {"headers": (("Host", "other"),)},
        {"headers": (("content-length", "0"),)},
        {"headers": (("Transfer-Encoding", "chunked"),)},
        {"method": "GET / HTTP/1.1\r\nevil: 1\r\n\r\nGET"},
        {"method": "CONNECT"},
        {"method": ""},
    ],
)
def test_what_would_write_a_request_of_its_own_is_not_sent(
    run: Run, fields: dict[str, Any]
) -> None:
    """SEC-4."""

    async def main() -> None:
        async with serving(answering()) as site, fetcher() as web:
            with pytest.raises(ValueError, match=r"header|method"):
                await web.fetch(local(site, **fields))
            assert site.visits == 0

    run(main())


@pytest.mark.parametrize(
    "url",
    [
        "",
        "x",
        "ftp://a/",
        "http://",
        "http://a b/",
        "http://u:SECRET@a/?query",
        "http://a:0/",
        "http://[::1",
    ],
)
def test_what_is_no_address_is_told_without_it(run: Run, url: str) -> None:
    async def main() -> None:
        async with fetcher() as web:
            assert not (await fails(web, Fetch(url=url))).sent

    run(main())


# --- which addresses are reached


@pytest.mark.parametrize(
    "host",
    [
        *(
            "127.0.0.1",
            "127.0.0.1.",
            "127.1",
            "2130706433",
            "0x7f000001",
            "0177.0.0.1",
            "localhost",
            "LOCALHOST.",
        ),
        *(
            "a.localhost",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "0.0.0.0",
            "[::]",
            "home.example",
        ),
        *("１２７.0.0.1", "①②⑦.⓪.⓪.①", "127。0。0。1", "ⓛocalhost"),
    ],
)
def test_this_machine_is_not_reached_by_any_spelling(run: Run, host: str) -> None:
    """SEC-4."""

    async def main() -> None:
        async with serving(answering()) as site, fetcher({"home.example": [HERE, "::1"]}) as web:
            problem = await fails(web, Fetch(url=site.url("/SECRET?query=1", host)))
            assert problem.forbidden
            assert not problem.sent
            assert host.strip("[]").lower() in str(problem) or not host.isascii()
            assert "allow_private" in str(problem) or "unusual form" in str(problem)
            assert site.visits == 0

    run(main())


def test_the_address_that_was_looked_at_is_the_one_that_is_dialled(run: Run) -> None:
    """SEC-4: a name that leads elsewhere a moment later leads nowhere; a connection that stands was
    looked at."""

    async def main() -> None:
        async def script(visit: Visit) -> None:
            while True:
                await visit.request()
                visit.answer(visit.writer.get_extra_info("sockname")[0].encode())

        names = {"rebinding.example": [[ABROAD], [HERE]]}
        async with serving(script) as site, fetcher(names) as web:
            request = Fetch(url=site.url("/", "rebinding.example"))
            for _ in range(3):
                assert (await web.fetch(request)).body == ABROAD.encode()
            assert site.visits == 1
            assert b"host: rebinding.example:%d\r\n" % site.port in site.requests[0]
            both = asyncio.gather(
                web.fetch(request), fails(web, request)
            )  # the second needs a new connection
            assert (await both)[1].forbidden
            assert site.visits == 1

    run(main())


def test_of_several_addresses_the_public_ones_are_tried_in_turn(run: Run) -> None:
    """SEC-4."""

    async def main() -> None:
        names = {"mixed.example": [HERE, ABROAD, "10.0.0.1"]}
        async with serving(answering(body=b"here"), host=ABROAD) as site, fetcher(names) as web:
            assert (await web.fetch(Fetch(url=site.url("/", "mixed.example")))).body == b"here"
        async with fetcher({"gone.example": [ABROAD, ABROAD]}) as web:
            problem = await fails(web, Fetch(url=site.url("/SECRET", "gone.example")))
            assert not problem.sent
            assert not problem.forbidden
            assert f"gone.example:{site.port}" in str(problem)

    run(main())


def test_who_may_reach_private_addresses_shares_no_connection_with_who_may_not(run: Run) -> None:
    """SEC-4."""

    async def main() -> None:
        async with serving(answering()) as site, fetcher() as web:
            await web.fetch(local(site))
            assert (await fails(web, Fetch(url=site.url()))).forbidden

    run(main())


def tls(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    key, cert = certificate(folder, name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context, ssl.create_default_context(cafile=str(cert))


def test_tls_checks_the_name_though_an_address_is_dialled(run: Run, tmp_path: Path) -> None:
    """SEC-4."""

    async def main() -> None:
        context, trusting = tls(tmp_path, "far.example")
        names = {"far.example": [ABROAD], "other.example": [ABROAD]}
        async with (
            serving(answering(body=b"x" * 200_000), ssl_context=context) as site,
            fetcher(names, ssl_context=trusting) as web,
        ):
            for _ in range(2):
                answer = await web.fetch(Fetch(url=site.url("/", "far.example", "https")))
                assert len(answer.body) == 200_000
            assert site.visits == 1
            problem = await fails(web, Fetch(url=site.url("/", "other.example", "https")))
            assert "certificate" in str(problem).lower()
            assert not problem.sent

    run(main())


# --- redirects


def leading(status: int, location: str, then: bytes = b"there") -> Script:
    """/start leads elsewhere; all else is answered."""

    async def script(visit: Visit) -> None:
        while True:
            request = await visit.request()
            if request.split()[1].startswith(b"/start"):
                body = b"" if request.startswith(b"HEAD") else b"moved"
                visit.answer(
                    status=status,
                    body=body,
                    location=location.replace("PORT", str(visit.site.port)),
                )
            else:
                visit.answer(b"" if request.startswith(b"HEAD") else then)

    return script


@pytest.mark.parametrize(
    ("status", "method", "becomes"),
    [
        *((status, "GET", "GET") for status in (301, 302, 303, 307, 308)),
        *((status, "HEAD", "HEAD") for status in (301, 302, 303, 307, 308)),
        *((status, "POST", "GET") for status in (301, 302, 303)),
        *((status, "POST", "POST") for status in (307, 308)),
        *((status, "PUT", "PUT") for status in (301, 302, 307, 308)),
        (303, "PUT", "GET"),
        (303, "DELETE", "GET"),
    ],
)
def test_a_redirect_is_followed_as_browsers_do(status: int, method: str, becomes: str) -> None:
    async def main() -> None:
        async with serving(leading(status, "../then?x=1#f")) as site, fetcher() as web:
            body = b"data" if method in ("POST", "PUT") else b""
            headers = (("Content-Type", "a/b"), ("authorization", "SECRET"))
            answer = await web.fetch(
                local(site, "/start/a", method=method, body=body, headers=headers)
            )
            assert (answer.status, answer.url) == (200, site.url("/then?x=1"))
            _, second = site.requests
            assert second.split()[:2] == [becomes.encode(), b"/then?x=1"]
            assert second.endswith(body if becomes == method else b"\r\n\r\n")
            assert (b"Content-Type" in second) == (becomes == method)
            assert b"authorization: SECRET" in second
            assert site.visits == 1 or method == "HEAD"

    asyncio.run(main())


def test_what_proves_us_goes_to_no_other_origin(run: Run) -> None:
    """SEC-4: not to another port, nor host, nor scheme; and not back again."""
    headers = (
        *(
            ("Authorization", "SECRET"),
            ("cookie", "SECRET"),
            ("Proxy-Authorization", "SECRET"),
            ("X-Key", "SECRET"),
        ),
        ("x-plain", "kept"),
    )

    async def main() -> None:
        async def back(visit: Visit) -> None:
            await visit.request()
            visit.answer(status=302, location=one.url("/then"))

        async with (
            serving(back) as two,
            fetcher({"a.example": [ABROAD], "b.example": [ABROAD]}) as web,
        ):
            async with serving(leading(302, two.url("/x"))) as one:
                request = local(
                    one, "/start?key=SECRET", headers=headers, private=frozenset({"x-key"})
                )
                assert (await web.fetch(request)).body == b"there"
                assert b"SECRET" in one.requests[0]
                for later in (two.requests[0], one.requests[1]):
                    assert b"SECRET" not in later
                    assert b"x-plain: kept" in later
            async with serving(leading(302, "http://b.example:PORT/then")) as one:
                await web.fetch(
                    Fetch(
                        url=one.url("/start", "a.example"),
                        headers=headers,
                        private=frozenset({"x-key"}),
                    )
                )
                assert b"host: b.example" in one.requests[1]
                assert b"SECRET" not in one.requests[1]

    run(main())


def test_from_https_to_http_nothing_goes_that_proves_us(run: Run, tmp_path: Path) -> None:
    """SEC-4."""

    async def main() -> None:
        context, trusting = tls(tmp_path, "localhost")
        async with (
            serving(answering(body=b"plain")) as plain,
            serving(leading(302, plain.url("/x", "localhost")), ssl_context=context) as safe,
            fetcher(ssl_context=trusting) as web,
        ):
            url = safe.url("/start", "localhost", "https")
            proof = (("authorization", "SECRET"),)
            problem = await fails(web, Fetch(url=url, headers=proof, allow_private=True))
            assert problem.forbidden
            assert plain.visits == 0
            assert (await web.fetch(Fetch(url=url, allow_private=True))).body == b"plain"

    run(main())


@pytest.mark.parametrize(
    "location",
    [
        *(
            "http://127.0.0.1:PORT/SECRET",
            "http://localhost:PORT/",
            "//127.1:PORT/",
            "http://[::1]:PORT/?query",
        ),
        *(
            "http://169.254.169.254/latest/meta-data/",
            "http://home.example:PORT/",
            "http://2130706433:PORT/",
        ),
        *(
            "file:///etc/passwd",
            "ftp://a.example/",
            "javascript:alert(1)",
            "gopher://127.0.0.1:PORT/_SECRET",
        ),
        *("http://u:SECRET@a.example:PORT/", "http://a.example:99999/", "http://["),
    ],
)
def test_a_redirect_leads_to_no_place_that_may_not_be_reached(run: Run, location: str) -> None:
    """SEC-4: redirects are re-checked."""

    async def main() -> None:
        names = {"a.example": [ABROAD], "home.example": [HERE]}
        async with serving(leading(302, location)) as site, fetcher(names) as web:
            problem = await fails(web, Fetch(url=site.url("/start?query", "a.example")))
            assert problem.forbidden
            assert problem.sent
            assert len(site.requests) == 1

    run(main())


@pytest.mark.parametrize("status", [307, 308])
def test_a_body_goes_to_no_other_origin(run: Run, status: int) -> None:
    async def main() -> None:
        async with (
            serving(answering()) as two,
            serving(leading(status, two.url("/x"))) as one,
            fetcher() as web,
        ):
            problem = await fails(web, local(one, "/start", method="POST", body=b"SECRET"))
            assert problem.forbidden
            assert problem.sent
            assert two.visits == 0

    run(main())


def test_redirects_end(run: Run) -> None:
    async def main() -> None:
        async with serving(leading(302, "/start")) as site, fetcher() as web:
            problem = await fails(web, local(site, "/start", redirects=3))
            assert "3 redirects" in str(problem)
            assert len(site.requests) == 4
            answer = await web.fetch(local(site, "/start", redirects=0))
            assert (answer.status, answer.headers.get("location"), answer.body) == (
                302,
                "/start",
                b"moved",
            )

    run(main())


@pytest.mark.parametrize("status", [300, 304, 305, 302])
def test_what_leads_nowhere_is_an_answer(status: int) -> None:
    async def main() -> None:
        headers = {} if status == 302 else {"location": "/x"}
        async with serving(answering(status=status, **headers)) as site, fetcher() as web:
            assert (await web.fetch(local(site))).status == status

    asyncio.run(main())


def test_the_body_of_a_redirect_is_not_waited_for_if_it_is_large(run: Run) -> None:
    async def main() -> None:
        async def script(visit: Visit) -> None:
            while (await visit.request()).split()[1] == b"/then":
                visit.answer(b"there")
            else:
                sized = b"/sized" in visit.site.requests[-1]
                length = b"content-length: 99999999999" if sized else b"transfer-encoding: chunked"
                visit.write(b"HTTP/1.1 302 X\r\nlocation: /then\r\n%b\r\n\r\n" % length)
                if not sized:
                    visit.write(b"ffff\r\n" + bytes(0xFFFF) + b"\r\n")
            await visit.reader.read()

        async with serving(script) as site, fetcher() as web:
            for path in ("/sized", "/chunked"):
                assert (await web.fetch(local(site, path))).body == b"there"

    run(main())


# --- packed answers

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
}


@pytest.mark.parametrize("encoding", PACKERS)
def test_a_packed_answer_is_unpacked(run: Run, encoding: str) -> None:
    body = b" ".join(b"%d words" % n for n in range(200_000))

    async def main() -> None:
        script = answering(body=PACKERS[encoding](body), content_encoding=encoding)
        async with serving(script) as site, fetcher() as web:
            for _ in range(2):
                assert (await web.fetch(local(site))).body == body
            assert site.visits == 1

    run(main())


@pytest.mark.parametrize("encoding", PACKERS)
def test_a_bomb_costs_neither_memory_nor_time(run: Run, encoding: str) -> None:
    """SEC-4: it ends at the limit, and others have their turns meanwhile."""
    bomb = PACKERS[encoding](bytes(2**26))

    async def main() -> None:
        async with (
            serving(answering(body=bomb, content_encoding=encoding)) as site,
            fetcher() as web,
        ):
            began = time.process_time()
            problem = await fails(web, local(site, limit=2**22))
            assert "4,194,304 bytes unpacked" in str(problem)
            assert problem.sent
            assert time.process_time() - began < 1.0

    run(main())


def test_a_large_packed_answer_leaves_turns_for_others(run: Run) -> None:
    packed = gzip.compress(bytes(2**26))  # 65 KB

    async def main() -> None:
        async with (
            serving(answering(body=packed, content_encoding="gzip")) as site,
            fetcher() as web,
        ):
            asked = asyncio.create_task(web.fetch(local(site, limit=2**27)))
            turns = 0
            while not asked.done():
                turns += 1
                await asyncio.sleep(0)
            assert len((await asked).body) == 2**26
            assert turns > 30, "64 MB in pieces of about a millisecond"

    run(main())


@pytest.mark.parametrize(
    ("encoding", "body", "said"),
    [
        ("gzip", b"plain text", "not packed as its head says"),
        ("gzip", gzip.compress(b"x" * 1000)[:-3], "too early"),
        ("deflate", b"plain text", "not packed"),
        ("br", b"x", "'br', which was not asked for"),
        ("gzip, gzip", b"x", "'gzip, gzip'"),
    ],
    ids=["plain", "cut", "no deflate", "unknown", "twice"],
)
def test_a_body_that_cannot_be_unpacked_is_no_answer(
    run: Run, encoding: str, body: bytes, said: str
) -> None:
    async def main() -> None:
        async with (
            serving(answering(body=body, content_encoding=encoding)) as site,
            fetcher() as web,
        ):
            problem = await fails(web, local(site))
            assert said in str(problem)
            assert problem.sent

    run(main())


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304)])
def test_an_answer_without_a_body_needs_no_unpacking(run: Run, method: str, status: int) -> None:
    async def main() -> None:
        head = (
            b"HTTP/1.1 %d X\r\ncontent-encoding: gzip\r\ncontent-length: 99999999999\r\n\r\n"
            % status
        )
        async with serving(saying(head)) as site, fetcher() as web:
            answer = await web.fetch(local(site, method=method))
            assert (answer.status, answer.body) == (status, b"")

    run(main())


def test_an_empty_body_is_empty_whatever_it_is_packed_in() -> None:
    async def main() -> None:
        async with serving(answering(content_encoding="gzip")) as site, fetcher() as web:
            assert (await web.fetch(local(site))).body == b""

    asyncio.run(main())


# --- bounds


def test_an_answer_that_says_it_is_too_large_is_not_read(run: Run) -> None:
    async def main() -> None:
        async with (
            serving(saying(b"HTTP/1.1 200 X\r\ncontent-length: 1001\r\n\r\n")) as site,
            fetcher() as web,
        ):
            problem = await fails(web, local(site, limit=1000))
            assert "larger than 1,000 bytes" in str(problem)
            await until(lambda: site.open == 0)

    run(main())


def test_an_answer_that_grows_too_large_is_cut(run: Run) -> None:
    async def endless(visit: Visit) -> None:
        await visit.request()
        visit.write(b"HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            visit.write(b"2\r\nab\r\n" * 1000)
            await visit.writer.drain()

    async def main() -> None:
        async with serving(endless) as site, fetcher() as web:
            assert "larger" in str(await fails(web, local(site, limit=100_000)))
            await until(lambda: site.open == 0)
        async with serving(answering(body=b"x" * 1000)) as site, fetcher() as web:
            assert len((await web.fetch(local(site, limit=1000))).body) == 1000

    run(main())


OK = b"HTTP/1.1 200 X\r\n"


@pytest.mark.parametrize(
    "pieces",
    [
        [b""],
        [b"HTTP/1.1 200"],
        [b"SSH-2.0-OpenSSH\r\n\r\n"],
        [b"\x00\xff garbage \r\n\r\n"],
        [OK + b"content-length: 10\r\n\r\nshort"],
        [OK + b"content-length: x\r\n\r\n"],
        [OK + b"content-length: 5\r\ncontent-length: 6\r\n\r\nhello!"],
        [OK + b"transfer-encoding: chunked\r\n\r\n5\r\nhel"],
        [OK + b"transfer-encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n"],
        [OK + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n"],
        [OK + b"x: y\r\n" * 20_000],
        [OK + b"x: " + b"y" * 100_000],
        [b"HTTP/1.1 100 X\r\n\r\n" * 10_000],
        [b"HTTP/1.1 101 X\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"],
    ],
)
def test_what_is_not_a_whole_answer_is_no_answer(run: Run, pieces: list[bytes]) -> None:
    async def main() -> None:
        async with serving(saying(*pieces, then_close=True)) as site, fetcher() as web:
            problem = await fails(web, local(site, "/SECRET?query"))
            assert problem.sent
            assert not problem.timed_out
            assert HERE in str(problem)

    run(main())


def test_an_answer_may_end_with_its_connection(run: Run) -> None:
    async def main() -> None:
        async with (
            serving(saying(b"HTTP/1.0 200 OK\r\n\r\nold", b"er", then_close=True)) as site,
            fetcher() as web,
        ):
            assert (await web.fetch(local(site))).body == b"older"
        packed = b"HTTP/1.0 200 OK\r\ncontent-encoding: gzip\r\n\r\n" + gzip.compress(b"older")
        async with serving(saying(packed, then_close=True)) as site, fetcher() as web:
            assert (await web.fetch(local(site))).body == b"older"
        async with serving(saying(packed[:-1], then_close=True)) as site, fetcher() as web:
            assert "too early" in str(await fails(web, local(site)))

    run(main())


def test_what_stands_behind_an_answer_is_not_the_next_one(run: Run) -> None:
    async def main() -> None:
        script = saying(
            OK + b"content-length: 4\r\n\r\nmine" + OK + b"content-length: 4\r\n\r\nevil"
        )
        async with serving(script) as site, fetcher() as web:
            for _ in range(2):
                assert (await web.fetch(local(site))).body == b"mine"
            assert site.visits == 2

    run(main())


def test_too_many_that_wait_are_refused_before_they_are_sent(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("FEWEST_CONNECTIONS", 1), ("MOST_CONNECTIONS", 1), ("MOST_WAITING", 0)):
        monkeypatch.setattr(http_client, name, value)

    async def main() -> None:
        async with serving(saying()) as site, fetcher() as web:
            first = asyncio.create_task(web.fetch(local(site)))
            await until(lambda: site.requests)
            problem = await fails(web, local(site))
            assert not problem.sent
            assert "too much waits" in str(problem)
            first.cancel()

    run(main())


def test_nothing_answers(run: Run) -> None:
    async def main() -> None:
        async with serving(answering()) as site:
            pass
        async with fetcher() as web:
            problem = await fails(web, local(site, "/SECRET"))
            assert not problem.sent
            problem = await fails(web, Fetch(url="http://unknown.example/SECRET"))
            assert not problem.sent
            assert "unknown.example" in str(problem)

    run(main())


async def _drip(visit: Visit) -> None:
    await visit.request()
    visit.write(b"HTTP/1.1 200 X\r\ncontent-length: 1000000\r\n\r\n")
    while True:
        visit.write(b"x")
        await visit.writer.drain()
        await asyncio.sleep(0.01)


async def _drip_redirects(visit: Visit) -> None:
    while True:
        await visit.request()
        await asyncio.sleep(0.05)
        visit.answer(status=302, location="/again")


@pytest.mark.parametrize("script", [_drip, saying(), _drip_redirects])
def test_the_time_is_for_all_of_it(run: Run, script: Script) -> None:
    async def main() -> None:
        async with serving(script) as site, fetcher() as web:
            began = time.monotonic()
            problem = await fails(web, local(site, "/SECRET", timeout=0.2, redirects=1000))
            assert 0.19 < time.monotonic() - began < 5
            assert problem.timed_out
            assert problem.sent
            assert f"{HERE}:{site.port} did not answer within 0.2 s" in str(problem)
            await until(lambda: site.open == 0)

    run(main())


def test_time_runs_out_before_anything_is_sent(run: Run) -> None:
    async def never(host: str) -> list[str]:
        await asyncio.Event().wait()
        return []

    async def main() -> None:
        web = Fetcher({}, guard=Guard(never))
        problem = await fails(web, Fetch(url="http://slow.example/SECRET", timeout=0.1))
        assert (problem.timed_out, problem.sent) == (True, False)
        await web.close()

    run(main())


def test_tls_that_never_comes_about_ends_with_the_time(run: Run) -> None:
    async def main() -> None:
        async with serving(saying()) as site, fetcher({"far.example": [ABROAD]}) as web:
            problem = await fails(
                web, Fetch(url=site.url("/", "far.example", "https"), timeout=0.2)
            )
            assert (problem.timed_out, problem.sent) == (True, False)
            await until(lambda: site.open == 0)

    run(main())


@pytest.mark.parametrize("script", [_drip, saying()])
def test_fifty_requests_that_are_given_up_leave_nothing(run: Run, script: Script) -> None:
    async def main() -> None:
        async with serving(script) as site, fetcher({"a.example": [ABROAD]}) as web:
            for url, private in ((site.url(), True), (site.url("/", "a.example"), False)):
                asked = [
                    asyncio.create_task(web.fetch(Fetch(url=url, allow_private=private)))
                    for _ in range(50)
                ]
                await until(lambda: site.open == 50)
                for task in asked:
                    task.cancel()
                results = await asyncio.gather(*asked, return_exceptions=True)
                assert all(isinstance(result, asyncio.CancelledError) for result in results)
                await until(lambda: site.open == 0)
            asked = [asyncio.create_task(web.fetch(Fetch(url=url))) for _ in range(50)]
            await asyncio.sleep(0)
            for task in asked:  # while they connect
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
            await until(lambda: site.open == 0)
            assert not any(pool.busy for pool in web._pools.values())

    run(main())


def test_closing_ends_what_is_under_way(run: Run) -> None:
    async def main() -> None:
        async with serving(saying()) as site, fetcher() as web:
            asked = asyncio.create_task(fails(web, local(site)))
            await until(lambda: site.requests)
            await web.close()
            assert (await asked).sent
            assert not (await fails(web, local(site))).sent
            await until(lambda: site.open == 0)

    run(main())


def test_many_at_once_are_answered_over_few_connections(run: Run) -> None:
    async def main() -> None:
        async def echo(visit: Visit) -> None:
            while True:
                visit.answer((await visit.request()).split()[1])

        async with serving(echo) as site, fetcher({"a.example": [ABROAD]}) as web:

            async def one(number: int) -> Answer:
                return await web.fetch(Fetch(url=site.url(f"/{number}", "a.example")))

            answers = await asyncio.gather(*[one(number) for number in range(500)])
            assert [answer.body for answer in answers] == [b"/%d" % number for number in range(500)]
            assert site.visits <= 256

    run(main())


# --- proxies


def test_http_and_https_go_through_the_proxy_of_the_environment(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        context, trusting = tls(tmp_path, "far.example")
        ports: list[int] = []

        async def through(visit: Visit) -> None:
            await proxy_script(visit.reader, visit.writer, ports[0])

        async with (
            serving(answering(body=b"tls"), ssl_context=context) as site,
            serving(through) as tunnel,
            serving(answering(body=b"proxied")) as forward,
        ):
            ports.append(site.port)
            environ = {
                "https_proxy": f"http://user:pa%3Ass@127.0.0.1:{tunnel.port}",
                "http_proxy": f"http://127.0.0.1:{forward.port}",
                "no_proxy": "near.example",
            }
            names = {
                "near.example": [ABROAD],
                "home.example": [HERE],
                "mixed.example": [ABROAD, HERE],
            }
            async with fetcher(names, environ=environ, ssl_context=trusting) as web:
                assert (await web.fetch(Fetch(url="https://far.example/"))).body == b"tls"
                assert (await web.fetch(Fetch(url="http://far.example/x?y"))).body == b"proxied"
                assert forward.requests[0].startswith(
                    b"GET http://far.example/x?y HTTP/1.1\r\nhost: far.example\r\n"
                )
                assert (
                    await web.fetch(Fetch(url=forward.url("/direct", "near.example")))
                ).body == b"proxied"
                assert forward.requests[1].startswith(b"GET /direct ")
                before = tunnel.visits, forward.visits
                for host in (
                    "10.0.0.1",
                    "169.254.169.254",
                    "010.0.0.1",
                    "home.example",
                    "mixed.example",
                    "x.internal",
                ):
                    for scheme in ("http", "https"):
                        assert (await fails(web, Fetch(url=f"{scheme}://{host}/SECRET"))).forbidden
                assert (tunnel.visits, forward.visits) == before

    run(main())


@pytest.mark.parametrize("proxy", ["https://p:1", "socks5://p:1"])
def test_a_proxy_that_is_not_spoken_to_is_named(run: Run, proxy: str) -> None:
    async def main() -> None:
        async with fetcher(environ={"HTTPS_PROXY": proxy}) as web:
            problem = await fails(web, Fetch(url="https://far.example/SECRET"))
            assert "HTTPS_PROXY" in str(problem)
            assert "not supported" in str(problem)
            assert not problem.sent

    run(main())


def test_nothing_of_a_request_is_shown() -> None:
    request = Fetch(url="http://a/SECRET", headers=(("authorization", "SECRET"),), body=b"SECRET")
    assert "SECRET" not in repr(request)
    assert "SECRET" not in repr(
        Answer(200, fetching.Headers({b"a": b"SECRET"}), b"SECRET", "http://a/SECRET")
    )
