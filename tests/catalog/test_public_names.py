"""Names and URIs on their own: what is made of them, and that the way back holds for anything."""

import base64
import hashlib
import json
import re
import tracemalloc

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mcpx.catalog.naming import Naming, may_belong, public_name, safe_name, unwrap_uri, wrap_uri

# How long a busy machine takes says nothing here.
calmly = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=200)
NAMINGS = st.builds(
    Naming,
    separator=st.sampled_from(["_", "::"]),
    prefix=st.sampled_from(["configured", "always"]),
    uris=st.sampled_from(["wrapped", "plain"]),
    max_length=st.integers(16, 128),
)
ALLOWED = {"_": re.compile(r"[A-Za-z0-9_.-]+"), "::": re.compile(r"(?:[A-Za-z0-9_.-]|::)+")}


def wrapped(payload: bytes) -> str:
    return "proxy://resource/" + base64.urlsafe_b64encode(payload).decode()


@pytest.mark.parametrize(
    ("prefix", "naming", "public"),
    [
        (None, Naming(), "status"),
        ("", Naming(), "status"),
        ("g", Naming(), "g_status"),
        ("g", Naming(separator="::"), "g::status"),
        (None, Naming(prefix="always"), "git_status"),
        ("", Naming(prefix="always"), "git_status"),
        ("g", Naming(prefix="always"), "g_status"),
        (None, Naming(separator="::", prefix="always"), "git::status"),
    ],
)
def test_a_prefix_goes_in_front_and_without_one_the_name_stays_plain(
    prefix: str | None, naming: Naming, public: str
) -> None:
    """NAM-1, NAM-2"""
    assert public_name("git", "status", prefix, naming) == public


ALWAYS = Naming(prefix="always")
PAIRS = Naming(prefix="always", separator="::")


@pytest.mark.parametrize(
    ("server", "native", "naming", "public"),
    [
        ("git", "git_status", ALWAYS, "git_status"),
        ("git", "git-status", ALWAYS, "git-status"),
        ("git", "git.status", ALWAYS, "git.status"),
        ("git", "git::status", ALWAYS, "git::status"),
        ("GitHub", "github_search", ALWAYS, "github_search"),
        ("git", "git::status", PAIRS, "git::status"),
        # Not its own name, or nothing behind it.
        ("git", "gitstatus", ALWAYS, "git_gitstatus"),
        ("git", "github_status", ALWAYS, "git_github_status"),
        ("git", "git", ALWAYS, "git_git"),
        ("git", "git_", ALWAYS, "git_git_"),
        ("git", "status_git_x", ALWAYS, "git_status_git_x"),
        # Clients take `server::name` apart.
        ("git", "git_status", PAIRS, "git::git_status"),
        ("git", "git::", PAIRS, "git::git::"),
        ("git", "git_status", Naming(), "git_status"),
    ],
)
def test_a_name_that_begins_with_its_servers_is_not_given_it_twice(
    server: str, native: str, naming: Naming, public: str
) -> None:
    """NAM-2"""
    assert public_name(server, native, None, naming) == public


def test_a_prefix_that_the_user_wrote_is_always_put_in_front() -> None:
    """NAM-1"""
    assert public_name("git", "git_status", "git", ALWAYS) == "git_git_status"


@calmly
@given(
    st.text("git_-:", max_size=6),
    st.text("git_-:", max_size=9),
    st.sampled_from([None, "", "g"]),
    NAMINGS,
)
def test_a_server_is_known_by_the_names_it_would_give(
    server: str, native: str, prefix: str | None, naming: Naming
) -> None:
    """LIF-4: one that never came up is tried when such a name is called."""
    public = public_name(server, native, prefix, naming)
    prefixed = bool(prefix) or (naming.prefix == "always" and bool(server))
    assert may_belong(public, server, prefix, naming) == prefixed


@pytest.mark.parametrize("name", ["status", "a.b-c_D9", "_", "9", "x" * 64])
def test_a_name_that_clients_take_is_left_alone(name: str) -> None:
    """NAM-5"""
    assert safe_name(name, Naming()) == name


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("read file", "read_file"),
        ("a/b", "a_b"),
        ("größe", "gr__e"),
        ("a::b", "a__b"),
        ("x" * 65, "x" * 57),
        ("", ""),
        ("status\n", "status_"),
        ("\ud800", "_"),
    ],
)
def test_a_name_that_clients_refuse_is_made_legal_and_ends_in_a_tag(name: str, body: str) -> None:
    """NAM-5"""
    tag = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    assert safe_name(name, Naming()) == f"{body}_{tag}"


def test_the_separator_counts_as_a_pair_and_a_colon_alone_does_not() -> None:
    """NAM-5"""
    naming = Naming(separator="::", max_length=16)
    assert safe_name("git::status", naming) == "git::status"
    assert safe_name("git:status", naming).startswith("git_statu_")
    assert safe_name("a:::b", naming).startswith("a::_b_")
    # The cut falls between the two colons.
    assert safe_name("12345678::x-and-more", naming).startswith("12345678__")


@calmly
@given(ANY_TEXT, NAMINGS)
def test_every_safe_name_is_legal_and_fits(name: str, naming: Naming) -> None:
    """NAM-5"""
    made = safe_name(name, naming)
    assert ALLOWED[naming.separator].fullmatch(made)
    assert 1 <= len(made) <= naming.max_length
    assert safe_name(made, naming) == made


def test_a_limit_too_short_to_tell_names_apart_is_refused() -> None:
    """NAM-5"""
    with pytest.raises(ValueError, match="max_length"):
        Naming(max_length=15)


def test_a_wrapped_uri_is_base64url_of_compact_json_without_padding() -> None:
    """NAM-4"""
    uri = wrap_uri("docs", "file:///a?b")
    payload = uri.removeprefix("proxy://resource/")
    assert re.fullmatch(r"[A-Za-z0-9_-]+", payload)
    text = base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
    assert text == b'{"server":"docs","uri":"file:///a?b"}'


@calmly
@given(ANY_TEXT, ANY_TEXT)
@example("s", "\ud800")
@example("", "")
def test_wrapping_and_unwrapping_gives_back_what_went_in(server: str, uri: str) -> None:
    """NAM-4. Lone surrogates survive; two that make a pair become the one character they are in any
    JSON."""
    server, uri = (json.loads(json.dumps(text)) for text in (server, uri))
    assert unwrap_uri(wrap_uri(server, uri)) == (server, uri)


@calmly
@given(st.text(max_size=40))
def test_both_base64_alphabets_are_read_with_or_without_padding(uri: str) -> None:
    """NAM-4"""
    payload = json.dumps({"server": "s", "uri": uri + "?>~"}, ensure_ascii=False).encode()
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        padded = encode(payload).decode()
        for text in (padded, padded.rstrip("=")):
            assert unwrap_uri("proxy://resource/" + text) == ("s", uri + "?>~")


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "file:///a",
        "proxy://resource/",
        "proxy://resource/!!!!",
        "proxy://resource/ä",
        "proxy://resource/A",
        "PROXY://resource/e30",
        wrapped(b"{}"),
        wrapped(b"[]"),
        wrapped(b"null"),
        wrapped(b'{"server":1,"uri":"x"}'),
        wrapped(b'{"server":"s"}'),
        wrapped(b'{"server":"s","uri":null}'),
        wrapped(b"\xff\xfe\xff"),
        wrapped(b"[" * 100_000),
        wrapped(b'{"server":' + b"9" * 10_000),
        wrapped(json.dumps({"server": "s", "uri": "x" * 3_000_000}).encode()),
    ],
    ids=range(17),
)
def test_what_is_not_one_of_ours_is_nothing_and_no_error(uri: str) -> None:
    """NAM-4"""
    assert unwrap_uri(uri) is None


def test_what_is_too_long_to_be_one_of_ours_is_not_even_decoded() -> None:
    """NAM-4: a client's megabytes cost nothing."""
    uri = wrapped(json.dumps({"server": "s", "uri": "x" * 3_000_000}).encode())
    tracemalloc.start()
    try:
        assert unwrap_uri(uri) is None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < len(uri) // 10


@calmly
@given(ANY_TEXT)
def test_unwrapping_never_raises(text: str) -> None:
    """NAM-4"""
    unwrap_uri("proxy://resource/" + text)
    unwrap_uri(wrapped(text.encode("utf-8", "surrogatepass")))
