"""ADM-5: the files of the web UI, over a real socket; with a folder that stands for the built
one."""

import asyncio
import gzip
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kit.admin_api import bare_desk
from kit.http_client import Reply, fetch
from mcpx.admin.pages import Pages
from mcpx.admin.server import AdminServer
from mcpx.config import Config

Get = Callable[..., Reply]

SCRIPT = b"export const x = 1\n" * 200
PAGE = (
    b'<!doctype html><meta name="csp-nonce" content="__CSP_NONCE__"><script '
    b'src="/assets/a-1.js"></script>'
)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "site" / "assets").mkdir(parents=True)
    folder = tmp_path / "site"
    (folder / "index.html").write_bytes(PAGE)
    (folder / "favicon.svg").write_bytes(b"<svg/>")
    (folder / "assets" / "a-1.js").write_bytes(SCRIPT)
    (folder / "assets" / "a-1.js.gz").write_bytes(gzip.compress(SCRIPT))
    (tmp_path / "secret.txt").write_text("secret")
    return folder


@pytest.fixture
def get(site: Path) -> Get:
    def one(path: str, method: str = "GET", **headers: str) -> Reply:
        async def ask_it() -> Reply:
            server = AdminServer("127.0.0.1", 0, "token", Config())
            server.bind()
            try:
                await server.start(bare_desk)
                vars(server)["_running"].door.pages = Pages(site)
                named = {name.replace("_", "-"): value for name, value in headers.items()}
                return await asyncio.to_thread(fetch, server.url, path, method, named)
            finally:
                await server.close()

        return asyncio.run(ask_it())

    return one


def test_the_page_has_a_new_nonce_each_time_and_the_policy_that_goes_with_it(get: Get) -> None:
    first, second = get("/"), get("/index.html")
    nonces = [
        re.findall(rb'content="([\w-]+)"', answer.body)[0].decode() for answer in (first, second)
    ]
    assert nonces[0] != nonces[1] and b"__CSP_NONCE__" not in first.body
    policy = first.headers["content-security-policy"]
    assert (
        f"'nonce-{nonces[0]}'" in policy
        and "script-src 'self';" in policy
        and "unsafe" not in policy
    )
    assert "require-trusted-types-for 'script'" in policy and "frame-ancestors 'none'" in policy
    assert first.headers["cache-control"] == "no-store"
    assert first.headers["content-type"] == "text/html; charset=utf-8"


def test_files_with_a_hash_in_their_name_are_kept_for_good_and_sent_compressed(get: Get) -> None:
    packed = get("/assets/a-1.js", Accept_Encoding="gzip, br")
    assert gzip.decompress(packed.body) == SCRIPT and packed.headers["content-encoding"] == "gzip"
    assert packed.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert packed.headers["vary"] == "accept-encoding"
    assert packed.headers["content-type"] == "text/javascript; charset=utf-8"
    for accepted in ("", "br", "gzip;q=0", "identity"):
        plain = get("/assets/a-1.js", Accept_Encoding=accepted)
        assert plain.body == SCRIPT and plain.headers["content-encoding"] is None
    assert get("/assets/a-1.js.gz").status == 404


def test_what_the_browser_has_already_is_not_sent_again(get: Get) -> None:
    first = get("/favicon.svg")
    assert (first.headers["cache-control"], first.headers["content-type"]) == (
        "no-cache",
        "image/svg+xml",
    )
    for known in (
        first.headers["etag"],
        f"W/{first.headers['etag']}",
        f'"x", {first.headers["etag"]}',
        "*",
    ):
        again = get("/favicon.svg", If_None_Match=known)
        assert (again.status, again.body) == (304, b"")
    assert get("/favicon.svg", If_None_Match='"other"').status == 200


def test_a_head_has_the_headers_of_the_file_and_nothing_else(get: Get) -> None:
    answer = get("/assets/a-1.js", "HEAD")
    assert (answer.status, answer.body, answer.headers["content-length"]) == (
        200,
        b"",
        str(len(SCRIPT)),
    )


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/assets/../../secret.txt",
        "/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "//secret.txt",
        "/assets//a-1.js",
        "/assets",
        "/assets/",
        "/favicon.svg%00",
        "/FAVICON.svg",
        "/index.html/",
    ],
)
def test_only_the_files_there_are_can_be_had(get: Get, path: str) -> None:
    answer = get(path)
    assert answer.status == 404 and b"secret" not in answer.body
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_pages_are_only_read(get: Get) -> None:
    answer = get("/", "POST")
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
