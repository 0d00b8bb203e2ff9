"""SRC-3, SEC-4: an HTTP command against a real API on this machine."""

import asyncio
import json
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from email.utils import formatdate
from typing import Any

import pytest

from kit.http_api import ApiRequest, ApiResponse, HttpApi
from kit.loop import run
from kit.until import until
from mcpx.auth.credentials import Credentials, Fixed, Proof, Refusal
from mcpx.commands.http import HttpRequest
from mcpx.commands.parameters import Parameter, schema_of
from mcpx.commands.work import Bench, CommandFailed
from mcpx.model.call import Json
from mcpx.model.errors import Unproved
from mcpx.wire.fetch import Fetcher

NAMES = [Parameter(name=name) for name in ("a", "b", "c")]
SECRET = "canary-5f3a9b"


@pytest.fixture
def api() -> Iterator[HttpApi]:
    with HttpApi() as api:
        api.otherwise(lambda asked: {"ok": True})
        yield api


def call(
    api: HttpApi,
    arguments: Json | None = None,
    *,
    path: str = "/x",
    credentials: Credentials | None = None,
    told: list[str] | None = None,
    **fields: Any,
) -> Json:
    """The result of one call of a command with these fields."""

    async def main() -> Json:
        fetcher = Fetcher({})
        bench = Bench("it", schema_of(NAMES), {}, lambda: fetcher, credentials)
        fields.setdefault("allow_private", True)
        request = HttpRequest(url=api.url + path, **fields)
        assert list(request.mistakes(["a", "b", "c"])) == []
        work = request.prepare(bench)
        progress = None if told is None else lambda at, of, words: told.append(words)
        try:
            return await work.run(arguments or {}, progress)
        finally:
            await work.close()
            await fetcher.close()

    return run(main())


def failed(api: HttpApi, arguments: Json | None = None, **how: Any) -> str:
    with pytest.raises(CommandFailed) as caught:
        call(api, arguments, **how)
    return str(caught.value)


def text(result: Json) -> str:
    (block,) = result["content"]
    return block["text"]


# ---- what is sent


def test_a_request_is_sent_as_it_is_configured(api: HttpApi) -> None:
    """SRC-3."""
    call(
        api,
        {"a": "x/y", "b": "two words"},
        path="/v1/{a}?fixed=1",
        method="PUT",
        params={"q": "{b}", "gone": "{c}"},
        headers={"X-Of": "<{b}>", "X-Gone": "{c}"},
        body={"b": "{b}", "gone": "{c}", "n": 1},
    )
    asked = api.last
    assert (asked.method, asked.target) == ("PUT", "/v1/x%2Fy?fixed=1&q=two%20words")
    assert asked.get("x-of") == "<two words>" and asked.get("x-gone") is None
    assert asked.get("content-type") == "application/json"
    assert asked.json == {"b": "two words", "n": 1}


def test_the_usual_headers_are_sent_unless_the_command_has_its_own(api: HttpApi) -> None:
    call(api)
    assert (api.last.get("user-agent") or "").startswith("mcpx/")
    assert (api.last.get("accept") or "").startswith("application/json")
    assert api.last.get("content-type") is None
    call(api, response_format="xml", headers={"user-AGENT": "mine/1", "ACCEPT": "text/csv"})
    assert api.last.all("user-agent") == ["mine/1"] and api.last.all("accept") == ["text/csv"]


@pytest.mark.parametrize(
    ("fields", "content_type", "sent"),
    [
        ({"body": {"x": ["{a}", "{c}"]}}, "application/json", b'{"x":["1&2"]}'),
        ({"body": [1, "{a}"]}, "application/json", b'[1,"1&2"]'),
        ({"body": 7}, "application/json", b"7"),
        ({"body": "{a}", "body_format": "json"}, "application/json", b'"1&2"'),
        (
            {"body": '{"x": "{b}", "y": {b}}', "body_format": "json"},
            "application/json",
            b'{"x": "\\"q\\"", "y": "\\"q\\""}',
        ),
        (
            {"body": {"x": "{a}", "l": [1, 2], "gone": "{c}"}, "body_format": "form"},
            "form",
            b"x=1%262&l=1&l=2",
        ),
        ({"body": "x={a}&y=z", "body_format": "form"}, "form", b"x=1%262&y=z"),
        (
            {"body": "a text with {b} and { c }"},
            "text/plain; charset=utf-8",
            b'a text with "q" and { c }',
        ),
        (
            {"body": "<x>{a}</x>", "headers": {"Content-Type": "text/xml"}},
            "text/xml",
            b"<x>1&amp;2</x>",
        ),
        ({"body": "{a}", "headers": {"Content-Type": "text/xml"}}, "text/xml", b"1&2"),
        (
            {"body": '{"x": "{b}"}', "headers": {"content-type": "application/vnd.x+json"}},
            "application/vnd.x+json",
            b'{"x": "\\"q\\""}',
        ),
        (
            {
                "body": {"x": "{a}"},
                "headers": {"Content-Type": "application/x-www-form-urlencoded"},
            },
            "form",
            b"x=1%262",
        ),
    ],
)
def test_a_body_is_sent_in_its_format(
    fields: Json, content_type: str, sent: bytes, api: HttpApi
) -> None:
    """SRC-3, SEC-4."""
    call(api, {"a": "1&2", "b": '"q"'}, method="POST", **fields)
    expected = "application/x-www-form-urlencoded" if content_type == "form" else content_type
    assert api.last.all("content-type") == [expected]
    assert api.last.body == sent


def test_a_body_that_is_one_argument_without_a_value_is_none(api: HttpApi) -> None:
    call(api, method="POST", body="{c}", body_format="json")
    assert api.last.body == b"" and api.last.get("content-type") is None


def test_a_header_takes_no_line_break_and_no_odd_character(api: HttpApi) -> None:
    """SEC-4."""
    for value in ("a\r\nX-Evil: 1", "a\nb", "a\0", "\x1b"):
        assert "argument 'a' holds a line break or a control" in failed(
            api, {"a": value}, headers={"X": "{a}"}
        )
    assert "latin-1" in failed(api, {"a": "日"}, headers={"X": "{a}"})
    call(api, {"a": "é"}, headers={"X": "{a}"})
    assert api.last.get("x") == "é" and len(api.seen) == 1


def test_an_address_that_no_server_takes_is_not_sent(api: HttpApi) -> None:
    assert "the address would have 9," in failed(api, {"a": "x" * 9000}, params={"q": "{a}"})
    assert api.seen == []


# ---- answers


def test_json_comes_as_text_and_as_structured_content(api: HttpApi) -> None:
    """SRC-3, SUR-7."""
    for said, shown, structured in (
        (b'{"a": 1}', '{"a": 1}', {"a": 1}),
        (b'{\n  "a": 1\n}', '{"a":1}', {"a": 1}),
        (b"[1, 2]", "[1, 2]", {"result": [1, 2]}),
        (b"null", "null", {"result": None}),
        (b'\xef\xbb\xbf"x"', '"x"', {"result": "x"}),
    ):
        api.otherwise(lambda asked, said=said: said)
        assert call(api) == {
            "content": [{"type": "text", "text": shown}],
            "structuredContent": structured,
        }


def test_what_is_not_json_comes_as_the_text_it_is(api: HttpApi) -> None:
    api.otherwise(
        lambda asked: ApiResponse(
            "größer\n<b>".encode("latin-1"), headers={"Content-Type": "text/html; charset=latin-1"}
        )
    )
    assert call(api) == {"content": [{"type": "text", "text": "größer\n<b>"}]}
    api.otherwise(lambda asked: b'{"cut": ')
    assert call(api) == {"content": [{"type": "text", "text": '{"cut": '}]}


def test_text_is_text_even_if_it_looks_like_json(api: HttpApi) -> None:
    api.otherwise(lambda asked: [1])
    assert call(api, response_format="text") == {"content": [{"type": "text", "text": "[1]"}]}


def test_json_in_another_encoding_is_read(api: HttpApi) -> None:
    said = ApiResponse(
        '{"a":"ä"}'.encode("utf-16"), headers={"Content-Type": "application/json; charset=utf-16"}
    )
    api.otherwise(lambda asked: said)
    assert call(api)["structuredContent"] == {"a": "ä"}


def test_xml_is_read_as_json(api: HttpApi) -> None:
    """SRC-3."""
    xml = b'<?xml version="1.0" encoding="latin-1"?><r x="1"><i>a</i><i k="v">b</i><n/>t\xe9</r>'
    api.otherwise(lambda asked: ApiResponse(xml, headers={"Content-Type": "application/xml"}))
    read = {"r": {"@x": "1", "i": ["a", {"@k": "v", "#text": "b"}], "n": None, "#text": "té"}}
    result = call(api, response_format="xml")
    assert result["structuredContent"] == read and json.loads(text(result)) == read
    assert call(api, response_format="xml", result="r.i[0]")["structuredContent"] == {"result": "a"}


@pytest.mark.parametrize(
    "xml",
    [
        b'<!DOCTYPE r [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><r>&b;</r>',
        b'<!DOCTYPE r [<!ENTITY f SYSTEM "file:///etc/passwd">]><r>&f;</r>',
        b'<!DOCTYPE r SYSTEM "http://127.0.0.1:1/x.dtd"><r/>',
        b"<a>" * 200 + b"</a>" * 200,
        b"<r>" + b"<i/>" * 200_001 + b"</r>",
        b"<r>",
        b"no xml",
    ],
    ids=["laughs", "file", "dtd", "deep", "many", "cut", "text"],
)
def test_xml_that_is_not_read_comes_as_the_text_it_is(xml: bytes, api: HttpApi) -> None:
    """SEC-4: nothing is expanded, nothing is fetched."""
    api.otherwise(lambda asked: ApiResponse(xml, headers={"Content-Type": "application/xml"}))
    assert call(api, response_format="xml") == {"content": [{"type": "text", "text": xml.decode()}]}


@pytest.mark.parametrize("format", ["json", "xml", "text"])
def test_pictures_sounds_and_other_bytes_are_content_of_their_kind(
    format: str, api: HttpApi
) -> None:
    """SRC-3."""
    data = b"\x89PNG\0\xff"
    for kind in ("image/png", "audio/wav"):
        api.otherwise(
            lambda asked, kind=kind: ApiResponse(data, headers={"Content-Type": f"{kind}; x=1"})
        )
        (block,) = call(api, response_format=format)["content"]
        assert block == {"type": kind[:5], "data": b64encode(data).decode(), "mimeType": kind}
    api.otherwise(lambda asked: ApiResponse(data, headers={"Content-Type": "application/pdf"}))
    (block,) = call(api, path="/x/doc.pdf?key=1", response_format=format)["content"]
    resource = {
        "uri": f"{api.url}/x/doc.pdf",
        "mimeType": "application/pdf",
        "blob": b64encode(data).decode(),
    }
    assert block == {"type": "resource", "resource": resource}


def test_an_svg_is_text(api: HttpApi) -> None:
    """Models take no such picture."""
    api.otherwise(lambda asked: ApiResponse(b"<svg/>", headers={"Content-Type": "image/svg+xml"}))
    assert text(call(api)) == "<svg/>"


def test_an_empty_answer_is_said_to_be_one(api: HttpApi) -> None:
    api.otherwise(lambda asked: ApiResponse(status=204))
    assert text(call(api, method="DELETE")) == "(no content: 204 No Content)"


def test_a_head_request_tells_the_headers(api: HttpApi) -> None:
    api.otherwise(lambda asked: ApiResponse(b"xyz", headers={"ETag": '"1"', "Set-Cookie": "s=1"}))
    told = call(api, method="HEAD")["structuredContent"]
    assert (
        told["status"] == 200
        and told["headers"]["etag"] == '"1"'
        and told["headers"]["content-length"] == "3"
    )
    assert "set-cookie" not in told["headers"]
    assert call(api, method="HEAD", result="headers.etag")["structuredContent"] == {"result": '"1"'}


def test_a_part_of_the_answer_is_selected(api: HttpApi) -> None:
    """SRC-3."""
    api.otherwise(lambda asked: {"items": [{"n": "a"}, {"n": "b"}]})
    assert call(api, result="items[].n") == {
        "content": [{"type": "text", "text": '["a","b"]'}],
        "structuredContent": {"result": ["a", "b"]},
    }
    assert call(api, result="items[0]")["structuredContent"] == {"n": "a"}
    nothing = call(api, result="nothing.here")
    assert nothing["structuredContent"] == {"result": None} and text(nothing).startswith(
        "null (nothing in the response"
    )
    assert "'result' could not be applied" in failed(api, result="abs(items)")
    api.otherwise(lambda asked: b"<html>")
    assert "'result' selects from JSON, which the response is not; it begins: <html>" in failed(
        api, result="a"
    )


def test_a_selection_from_much_is_done_too(api: HttpApi) -> None:
    api.otherwise(lambda asked: [{"n": n} for n in range(30_000)])
    assert call(api, result="length(@)")["structuredContent"] == {"result": 30_000}


def test_an_answer_that_is_too_large_says_the_limit_and_the_key(api: HttpApi) -> None:
    """SEC-4: and is not asked for again."""
    api.otherwise(lambda asked: b"x" * 5000)
    said = failed(api, max_response=4000)
    assert "larger than 4,000 bytes" in said and "'max_response'" in said
    assert len(api.seen) == 1


def test_what_is_no_success_is_told_with_its_status_and_the_beginning_of_its_body(
    api: HttpApi,
) -> None:
    """SRC-3."""
    api.otherwise(
        lambda asked: ApiResponse(b'{"error":"no\x1b[31m such\r\ncity"}' + b"x" * 5000, 404)
    )
    said = failed(api)
    assert said.startswith('the server answered 404 Not Found: {"error":"no [31m such city"}xxx')
    assert len(said) < 2100 and said.endswith("…")
    api.otherwise(lambda asked: ApiResponse(b"\x00\xff", 418))
    assert failed(api) == "the server answered 418 I'm a Teapot"
    api.otherwise(lambda asked: ApiResponse(b"", 299 + 300))
    assert failed(api) == "the server answered 599"


# ---- trying again


class Answers:
    """One answer after the other."""

    def __init__(self, *said: Any) -> None:
        self._said = list(said)

    def __call__(self, asked: ApiRequest) -> Any:
        return self._said.pop(0)


def test_a_request_that_changes_nothing_is_tried_again(api: HttpApi) -> None:
    """SRC-3."""
    for status in (429, 502, 503, 504):
        for method in ("GET", "OPTIONS"):
            api.otherwise(
                Answers(ApiResponse(b"later", status), ApiResponse(b"later", status), {"ok": 1})
            )
            told: list[str] = []
            result = call(api, method=method, retry_delay=0.001, told=told)
            assert result["structuredContent"] == {"ok": 1} and len(told) == 2
            assert told[0].startswith(f"the server answered {status}") and told[0].endswith(
                "trying again in 0.001 s"
            )


def test_a_request_that_may_change_something_is_not(api: HttpApi) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        api.seen.clear()
        api.otherwise(lambda asked: ApiResponse(b"", 503))
        assert (
            failed(api, method=method, retry_delay=0.001)
            == "the server answered 503 Service Unavailable"
        )
        assert len(api.seen) == 1


def test_tries_are_counted_and_other_failures_are_final(api: HttpApi) -> None:
    api.otherwise(lambda asked: ApiResponse(b"", 503))
    assert "503" in failed(api, max_retries=2, retry_delay=0)
    assert len(api.seen) == 3
    api.seen.clear()
    api.otherwise(lambda asked: ApiResponse(b"", 500))
    assert "500" in failed(api, retry_delay=0)
    assert len(api.seen) == 1


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_the_time_that_a_server_asks_for_is_waited_for(form: str, api: HttpApi) -> None:
    said = "1" if form == "seconds" else formatdate(time.time() + 2, usegmt=True)
    api.otherwise(Answers(ApiResponse(b"", 429, {"Retry-After": said}), {"ok": 1}))
    began = time.monotonic()
    call(api, retry_delay=0)
    assert 0.9 <= time.monotonic() - began < 10


def test_who_asks_for_more_time_than_there_is_ends_the_call_at_once(api: HttpApi) -> None:
    api.otherwise(lambda asked: ApiResponse(b"busy", 429, {"Retry-After": "3600"}))
    began = time.monotonic()
    said = failed(api, timeout=5)
    assert (
        "429 Too Many Requests: busy" in said
        and "asks to wait 3,600 s, longer than what is left" in said
    )
    assert time.monotonic() - began < 3 and len(api.seen) == 1
    api.otherwise(lambda asked: ApiResponse(b"busy", 503))
    assert "not tried again: what is left of its 5 s is too short" in failed(
        api, timeout=5, retry_delay=6
    )


def test_a_server_that_is_not_there_is_tried_again_even_for_a_post(api: HttpApi) -> None:
    """Nothing was sent."""
    api.__exit__(None, None, None)
    told: list[str] = []
    failed(api, method="POST", max_retries=2, retry_delay=0.001, told=told)
    assert len(told) == 2
    api.__enter__()


def test_all_tries_together_end_within_the_time_out(api: HttpApi) -> None:
    api.otherwise(lambda asked: ApiResponse(b"", 503, {"Retry-After": "0"}))
    began = time.monotonic()
    failed(api, timeout=0.5, retry_delay=0.2, max_retries=1000)
    assert time.monotonic() - began < 5


# ---- proving us


def proof(**parts: Any) -> Credentials:
    return Fixed(Proof(**parts))


def test_a_proof_goes_into_headers_query_or_body(api: HttpApi) -> None:
    key = (("key", SECRET),)
    call(api, credentials=proof(headers=key), headers={"KEY": "old", "Other": "1"})
    assert api.last.all("key") == [SECRET] and api.last.get("other") == "1"
    call(api, credentials=proof(query=key), params={"q": "1"}, path="/x?key=old")
    assert api.last.pairs == [("q", "1"), ("key", SECRET)]
    call(api, credentials=proof(body=key), method="POST", body={"q": 1, "key": "old"})
    assert api.last.json == {"q": 1, "key": SECRET}
    call(api, credentials=proof(body=key), method="POST")
    assert api.last.json == {"key": SECRET} and api.last.get("content-type") == "application/json"
    for body in ({"q": "1", "key": "old"}, "q=1&key=old"):
        call(api, credentials=proof(body=key), method="POST", body_format="form", body=body)
        assert api.last.form == [("q", "1"), ("key", SECRET)]


def test_what_a_caller_gives_himself_wins_over_the_proof(api: HttpApi) -> None:
    """The weather example: an optional `api_key` beside an auth config that has one."""
    key = (("key", SECRET),)
    places: list[tuple[Json, Any]] = [
        (
            {"credentials": proof(query=key), "params": {"key": "{a}"}},
            lambda: api.last.query["key"],
        ),
        (
            {"credentials": proof(headers=key), "headers": {"Key": "{a}"}},
            lambda: api.last.get("key"),
        ),
        (
            {"credentials": proof(body=key), "method": "POST", "body": {"key": "{a}"}},
            lambda: api.last.json["key"],
        ),
        (
            {
                "credentials": proof(body=key),
                "method": "POST",
                "body": {"key": "{a}"},
                "body_format": "form",
            },
            lambda: dict(api.last.form)["key"],
        ),
    ]
    for how, sent in places:
        for given, expected in (({"a": "mine"}, "mine"), ({}, SECRET), ({"a": ""}, SECRET)):
            call(api, given, **how)
            assert sent() == expected


@pytest.mark.parametrize(
    "how", [{}, {"method": "POST", "body": [1]}, {"method": "POST", "body": "text"}]
)
def test_a_proof_that_has_no_place_is_told(how: Json, api: HttpApi) -> None:
    assert "its auth config puts a field into the body" in failed(
        api, credentials=proof(body=(("k", SECRET),)), **how
    )
    assert api.seen == []


class Renewed:
    """Credentials that get another one when they are refused."""

    def __init__(self, *, worth: bool = True) -> None:
        self.proof: Proof | None = None
        self.refusals: list[Refusal] = []
        self.got = 0
        self._worth = worth

    def now(self) -> Proof | None:
        return self.proof

    async def get(self) -> Proof:
        self.got += 1
        self.proof = Proof(headers=(("Authorization", f"Bearer token-{self.got}"),))
        return self.proof

    async def refused(self, proof: Proof, refusal: Refusal) -> bool:
        self.refusals.append(refusal)
        self.proof = None
        return self._worth

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_proof_is_renewed_once(method: str, status: int, api: HttpApi) -> None:
    challenge = {"WWW-Authenticate": 'Bearer error="invalid_token"'}
    api.otherwise(Answers(ApiResponse(b"", status, challenge), {"ok": 1}))
    credentials = Renewed()
    assert call(api, credentials=credentials, method=method)["structuredContent"] == {"ok": 1}
    assert [asked.get("authorization") for asked in api.seen] == [
        "Bearer token-1",
        "Bearer token-2",
    ]
    assert credentials.refusals == [Refusal(status, challenge["WWW-Authenticate"])]
    api.seen.clear()
    api.otherwise(lambda asked: ApiResponse(b"", status, challenge))
    assert str(status) in failed(api, credentials=Renewed(), method=method)
    assert len(api.seen) == 2


def test_a_proof_that_is_refused_for_good_is_not_tried_again(api: HttpApi) -> None:
    api.otherwise(lambda asked: ApiResponse(b"", 401))
    credentials = Renewed(worth=False)
    assert failed(api, credentials=credentials) == "the server answered 401 Unauthorized"
    assert len(api.seen) == len(credentials.refusals) == 1
    api.otherwise(lambda asked: ApiResponse(b"", 403))
    failed(api, credentials=credentials)
    assert len(credentials.refusals) == 1  # without a challenge it is not about the proof


def test_credentials_that_cannot_be_had_are_told(api: HttpApi) -> None:
    class Broken(Renewed):
        async def get(self) -> Proof:
            raise Unproved("the token server is down")

    assert failed(api, credentials=Broken()) == "the token server is down"
    assert api.seen == []


def test_credentials_that_take_for_ever_end_with_the_time_out(api: HttpApi) -> None:
    class Slow(Renewed):
        async def get(self) -> Proof:
            await asyncio.get_running_loop().create_future()
            raise AssertionError

    assert "timed out after 0.05 s, waiting for its credentials" in failed(
        api, credentials=Slow(), timeout=0.05
    )


def test_a_server_that_says_our_secrets_back_does_not_have_them_told(api: HttpApi) -> None:
    """SEC-4."""
    basic = b64encode(f"ada:{SECRET}".encode()).decode()
    odd = f'{SECRET}"/+ ?'
    for secret, given in (
        (f"Bearer {SECRET}", SECRET),
        (f"Basic {basic}", SECRET),
        (f"Basic {basic}", basic),
        (odd, odd),
    ):
        echo = f"you said {given} in {json.dumps({'h': given})} and {given}"
        api.otherwise(lambda asked, echo=echo: ApiResponse((echo + asked.target).encode(), 400))
        for credentials in (proof(headers=(("X-Key", secret),)), proof(query=(("key", secret),))):
            said = failed(api, credentials=credentials)
            assert SECRET not in said and given not in said and "***" in said


def test_the_same_holds_for_secrets_that_stand_in_the_command_itself(api: HttpApi) -> None:
    """SEC-4: under names that say so; the rest is told, or nobody could mend a command."""
    api.otherwise(
        lambda asked: ApiResponse(
            f"{asked.headers} {asked.target} {asked.body.decode()} v2024".encode(), 400
        )
    )
    for fields in (
        {"headers": {"X-Api-Key": SECRET}},
        {"headers": {"Authorization": f"Bearer {SECRET}"}},
        {"params": {"access_token": SECRET}},
        {"path": f"/x?apikey={SECRET}"},
        {"method": "POST", "body": {"login": {"password": SECRET}}},
    ):
        said = failed(api, **{"headers": {"X-Version": "v2024"}, **fields})
        assert SECRET not in said and "***" in said and "v2024" in said


def test_a_command_does_not_leave_a_request_behind_when_it_is_cancelled(api: HttpApi) -> None:
    arrived, release = threading.Event(), threading.Event()

    def slow(asked: ApiRequest) -> Any:
        arrived.set()
        release.wait(20)
        return {}

    api.otherwise(slow)

    async def main() -> None:
        fetcher = Fetcher({})
        bench = Bench("it", schema_of(NAMES), {}, lambda: fetcher)
        work = HttpRequest(url=api.url, allow_private=True).prepare(bench)
        task = asyncio.create_task(work.run({}, None))
        await until(arrived.is_set)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await fetcher.close()

    try:
        run(main())
    finally:
        release.set()
