"""What must not be said is in no text that went through the redactor, nor in any line of the log
(OBS-1)."""

import asyncio
import base64
import io
import json
import logging
import pickle
import sys
import threading
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpx.auth.api_key import ApiKey
from mcpx.auth.ring import Ring
from mcpx.model import redaction
from mcpx.model.redaction import Redactor, is_secret_name, is_worth_hiding, without_forms
from mcpx.wire import logs
from mcpx.wire.logs import OURS, Outlet, Plain

SECRET = 's3cr/t+ "q" ü\'x'


def redactor(*secrets: str) -> Redactor:
    made = Redactor()
    made.learn("test", secrets)
    return made


@pytest.mark.parametrize(
    "said",
    [
        SECRET,
        quote(SECRET),
        quote(SECRET, safe=""),
        quote(SECRET, safe="").lower(),
        quote_plus(SECRET),
        json.dumps(SECRET)[1:-1],
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
        repr(SECRET)[1:-1],
        *(
            base64.b64encode(f"{'u' * more}:{SECRET}{'!' * more}".encode()).decode()
            for more in range(4)
        ),
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
        SECRET.replace('"', "&quot;"),
    ],
)
def test_a_secret_is_found_however_it_is_spelled(said: str) -> None:
    told = redactor(SECRET).redact(f"before {said} behind")
    assert "***" in told and "before" in told and "behind" in told
    assert said not in told


@given(
    st.text(st.characters(codec="utf-8"), min_size=8, max_size=40),
    st.text(max_size=20),
    st.text(max_size=20),
)
def test_no_secret_is_left_in_any_text(secret: str, before: str, behind: str) -> None:
    made = redactor(secret)
    if not is_worth_hiding(secret) or not secret.isascii() or not secret.isalnum():
        made.redact(before + secret + behind)  # whatever it is, it fails on nothing
        return
    assert secret not in made.redact(f"{before} {secret} {behind}")


def test_of_two_that_overlap_nothing_is_left() -> None:
    told = redactor("abcdef123", "abcdef123-longer-one").redact("abcdef123-longer-one abcdef123")
    assert told == "*** ***"


@pytest.mark.parametrize("end", ["…", " …", "…; next try in 5 s"])
def test_the_beginning_of_a_secret_is_left_out_of_a_text_that_was_cut(end: str) -> None:
    made = redactor("canary-0123456789")
    assert made.redact(f"it said canary-0123{end}") == f"it said ***{end}"
    assert made.redact("canary-fish …") == "canary-fish …"


def test_the_lines_of_a_key_are_secret_each() -> None:
    made = redactor("-----BEGIN KEY-----\nMIIabcdef0123\nzzzz9876543\n-----END KEY-----\n")
    assert made.redact("it printed MIIabcdef0123 and zzzz9876543") == "it printed *** and ***"


def test_a_header_is_secret_with_and_without_its_scheme() -> None:
    basic = "Basic " + base64.b64encode(b"user:hunter2222").decode()
    made = redactor("Bearer abcdef-123456", basic)
    assert made.redact("abcdef-123456 hunter2222") == "*** ***"


@pytest.mark.parametrize(
    "common", ["true", "localhost", "abc12", "password", "aaaaaaa", "", "application/json"]
)
def test_what_is_short_or_common_is_left(common: str) -> None:
    text = f"the value is {common}, as always"
    assert redactor(common).redact(text) == text


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Authorization: Bearer abcdefgh12345", "Authorization: Bearer ***"),
        ("got eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl.", "got ***."),
        ("redis://user:pw@host:6379/0", "redis://***@host:6379/0"),
        ("GET /x?token=abc&page=2", "GET /x?token=***&page=2"),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123", "***"),
    ],
)
def test_what_looks_like_a_credential_is_left_out_though_nobody_knows_it(
    said: str, told: str
) -> None:
    assert without_forms(said) == told


@pytest.mark.parametrize(
    "text",
    [
        'Bearer error="invalid_token", scope="a b1"',
        'Bearer resource_metadata="https://h.example/x1"',
        "Bearer authentication is wanted",
        "https://auth.example/authorize?client_id=c1&state=s1234567890&code_challenge=x&resource=http%3A%2F%2Fh",
        "see https://h.example/@scope/package",
    ],
)
def test_what_people_need_to_read_is_left(text: str) -> None:
    assert without_forms(text) == text


def test_texts_of_strangers_do_not_take_long() -> None:
    import time

    made = redactor(*(f"secret-number-{number}" for number in range(50)))
    for piece in ("bearer ", "://", "eyJ", "eyJ-", "?token=", "basic x", "a"):
        began = time.perf_counter()
        made.redact(piece * (200_000 // len(piece)))
        assert time.perf_counter() - began < 5


def test_a_value_is_redacted_by_its_names_and_by_what_is_known() -> None:
    made = redactor("known-canary-1")
    value = {
        "password": "x",
        "apiKey": ["a"],
        "max_tokens": 100,
        "token": None,
        "next_page_token": "abc",
        "text": "with known-canary-1",
        "known-canary-1": 1,
        "list": [{"Authorization": {"a": 1}}, 5, True],
    }
    assert made.redact_json(value) == {
        "password": "***",
        "apiKey": "***",
        "max_tokens": 100,
        "token": None,
        "next_page_token": "abc",
        "text": "with ***",
        "***": 1,
        "list": [{"Authorization": "***"}, 5, True],
    }


def test_a_value_of_any_depth_is_redacted() -> None:
    value: object = "known-canary-1"
    for _ in range(5000):
        value = [value]
    assert "known-canary" not in str(redactor("known-canary-1").redact_json(value))


def test_names_of_secrets_are_told_from_others() -> None:
    secret = [
        "GITHUB_TOKEN",
        "X-Api-Key",
        "authToken",
        "DB_PASSWORD",
        "Authorization",
        "githubtoken",
        "SENTRY_DSN",
    ]
    plain = [
        "HOME",
        "AUTHOR",
        "MONKEY",
        "KEYBOARD",
        "TOKEN_URL",
        "KEY_FILE",
        "max_tokens",
        "AWS_ACCESS_KEY_ID",
    ]
    assert [name for name in (*secret, *plain) if is_secret_name(name)] == secret


def test_a_secret_that_was_replaced_stays_one_for_a_while() -> None:
    made = redactor("canary-number-0")
    for number in range(1, 10):
        made.learn("test", [f"canary-number-{number}"])
        assert made.redact(f"canary-number-{number - 1} canary-number-{number}") == "*** ***"
    assert made.redact("canary-number-1") == "canary-number-1"  # nothing is kept for ever
    made.forget("test")
    assert made.redact("canary-number-9") == "canary-number-9"


def test_a_redactor_shows_nothing_of_itself() -> None:
    assert SECRET not in repr(redactor(SECRET))


async def _token_of(ring: Ring) -> None:
    credentials = ring.of("a", ApiKey(name="k", value="x-y-z-1"))
    await credentials.get()
    await ring.close()


def test_credentials_that_are_closed_are_forgotten() -> None:
    made = Redactor()
    asyncio.run(_token_of(Ring({}, None, lambda: pytest.fail("asked"), redactor=made)))
    assert not made._known


# --- the log


@pytest.fixture
def out() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    console = logging.StreamHandler(stream)
    console.setFormatter(Plain())
    outlet = Outlet([console], redactor("known-canary-1").redact)
    loggers = [
        logging.getLogger(name) for name in ("mcpx.canary", "asyncio.canary", "somebody.else")
    ]
    for logger in loggers:
        logger.handlers[:], logger.propagate = [outlet], False
        logger.setLevel(logging.DEBUG)
    yield stream
    for logger in loggers:
        logger.handlers.clear()
        logger.propagate = True


def fail(text: str) -> None:
    raise ValueError(f"it failed with {text}") from KeyError(text)


@pytest.mark.parametrize("name", ["mcpx.canary", "asyncio.canary", "somebody.else"])
def test_no_line_of_the_log_holds_a_secret_whoever_writes_it(name: str, out: io.StringIO) -> None:
    log = logging.getLogger(name)
    log.debug("%s and %r", "known-canary-1", {"a": "known-canary-1"})
    log.warning("x" * (logs.LONGEST - 5) + "known-canary-1")  # cut in its middle
    log.info("ours\nknown-canary-1", extra=OURS)
    try:
        fail("known-canary-1")
    except ValueError:
        log.exception("with %s", b"known-canary-1")
    try:
        fail("y" * (logs.LONGEST - 30) + "known-canary-1")
    except ValueError:
        log.exception("cut")
    told = out.getvalue()
    assert "***" in told and "Traceback" in told and "ValueError" in told
    assert "known" not in told


def test_whatever_formats_a_line_it_is_redacted(out: io.StringIO) -> None:
    class AsJson(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return json.dumps({"message": record.getMessage(), "more": "known-canary-1"})

    console = logging.StreamHandler(out)
    console.setFormatter(AsJson())
    log = logging.getLogger("mcpx.canary")
    log.handlers[:] = [Outlet([console], redactor("known-canary-1").redact)]
    log.info("%s", "known-canary-1")
    assert json.loads(out.getvalue()) == {"message": "***", "more": "***"}


def test_what_nobody_caught_is_a_line_of_the_log(
    monkeypatch: pytest.MonkeyPatch, out: io.StringIO
) -> None:
    before = sys.excepthook, threading.excepthook, sys.unraisablehook
    log = logging.getLogger("mcpx")
    handlers, propagates = list(log.handlers), log.propagate
    log.handlers[:], log.propagate = logging.getLogger("mcpx.canary").handlers, False
    try:
        logs.log_uncaught_exceptions()
        thread = threading.Thread(target=fail, args=("known-canary-1",))
        thread.start()
        thread.join()
        try:
            fail("known-canary-1")
        except ValueError as error:
            sys.excepthook(ValueError, error, error.__traceback__)
    finally:
        sys.excepthook, threading.excepthook, sys.unraisablehook = before
        log.handlers[:], log.propagate = handlers, propagates
    told = out.getvalue()
    assert "a thread failed" in told and "mcpx failed" in told and "known" not in told


def test_what_is_redacted_can_be_handed_on() -> None:
    """To a process, say: nothing of the redactor is in it."""
    assert pickle.loads(pickle.dumps(redactor(SECRET).redact_json({"a": SECRET}))) == {"a": "***"}


PIECES = """
sk_live_ rk_test_ sk- ghp_ ghr_ github_pat_ glpat- xoxb- AKIA ASIA AIza ya29. SG. eyJ mcpxkey- Bearer bEARER Basic
baſic basıc BASİC :// @ ?token= &Api-Key= ?SIG= user pass 12345678 abcdefghijklmnopqrst ABCDEFGHIJKLMNOP . _ - é
"""


@given(st.lists(st.sampled_from([*PIECES.split(), " "]), max_size=8).map("".join))
def test_a_text_that_is_not_looked_through_holds_nothing_that_looks_like_a_credential(
    text: str,
) -> None:
    assert without_forms(text) == redaction._looks().sub(redaction._mark, text)  # pyright: ignore[reportPrivateUsage]
