"""Servers by their name in an MCP registry (the official API v0.1), and `server.json` files.

Promised: an answer is bounded in bytes and time; a registry that somebody named may be anywhere,
but where it sends us on to is looked at as any stranger's address. Whatever goes wrong is a
`ConfigError` that says what else can be given. Not done here: what its parts mean (`packages`).
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urljoin

from mcpx.imports.texts import one_line
from mcpx.model.call import Json, as_list, as_object
from mcpx.model.errors import ConfigError
from mcpx.wire.address import BadAddress, parse

if TYPE_CHECKING:
    from mcpx.wire.fetch import Answer, Fetcher

OFFICIAL = "https://registry.modelcontextprotocol.io"
VARIABLE = "MCPX_REGISTRY"
MAX_DOCUMENT = 2**20
TIMEOUT = 15.0
"""Seconds for one registry."""
REDIRECTS = 3
INSTEAD = (
    "a command line (mcpx add npx -y PACKAGE), an address, a client's JSON or a server.json "
    "file do without"
)
_NAME = re.compile(
    r"([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)/([A-Za-z0-9][A-Za-z0-9._-]*)(?:@([\w.+-]+))?"
)
_OURS = "io.modelcontextprotocol.registry/official"


@dataclass(frozen=True, slots=True)
class Listed:
    """A server as a registry or a file describes it."""

    document: Json = field(repr=False)
    source: str
    """The host of the registry, or the file."""
    published: str = ""
    status: str = ""

    @property
    def name(self) -> str:
        return one_line(str(self.document["name"]), 200)

    @property
    def publisher(self) -> str:
        """The namespace, which a registry lets only its owner use."""
        return self.name.rpartition("/")[0]

    @property
    def version(self) -> str:
        return one_line(str(self.document.get("version") or ""), 60)

    @property
    def description(self) -> str:
        return one_line(str(self.document.get("description") or ""), 300)

    def age(self, now: datetime | None = None) -> str:
        """How long ago this version was published; nothing where that is not known."""
        try:
            then = datetime.fromisoformat(self.published)
        except ValueError:
            return ""
        days = (
            (now or datetime.now(UTC)) - (then if then.tzinfo else then.replace(tzinfo=UTC))
        ).days
        return "published today" if days <= 0 else f"published {days} day{'s' * (days != 1)} ago"


def is_name(text: str) -> bool:
    """`io.github.owner/name`, perhaps with `@version`."""
    return len(text) <= 300 and _NAME.fullmatch(text) is not None


def is_document(tree: Any) -> bool:
    """Whether it reads like a `server.json`."""
    table = as_object(tree)
    table = as_object(table.get("server")) or table
    schema = str(table.get("$schema") or "")
    return "server.schema.json" in schema or (
        is_name(str(table.get("name"))) and bool(table.keys() & {"packages", "remotes"})
    )


def of_text(text: str, source: str) -> Listed:
    """Raises `ConfigError`."""
    if len(text) > MAX_DOCUMENT:
        raise ConfigError([f"error: {one_line(source)}: larger than {MAX_DOCUMENT:,} characters"])
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        raise ConfigError([f"error: {one_line(source)}: not valid JSON"]) from None
    whole = as_object(found)
    document = as_object(whole.get("server")) or whole
    name, packages, remotes = (
        document.get("name"),
        document.get("packages"),
        document.get("remotes"),
    )
    if not isinstance(name, str) or not is_name(name) or "@" in name:
        raise ConfigError(
            [
                f"error: {one_line(source)} is no server.json: its name is not like "
                "io.github.owner/name"
            ]
        )
    if not as_list(packages) and not as_list(remotes):
        raise ConfigError(
            [f"error: {one_line(source)}: {one_line(name)} has neither packages nor remotes"]
        )
    about = as_object(as_object(whole.get("_meta")).get(_OURS))
    published = about.get("publishedAt") or about.get("updatedAt") or ""
    return Listed(document, source, str(published), one_line(str(about.get("status") or ""), 20))


def of_file(path: Path) -> Listed:
    from mcpx.config.source import UnreadableError, read_text

    try:
        return of_text(read_text(path, MAX_DOCUMENT), str(path))
    except UnreadableError as error:
        raise ConfigError([f"error: {one_line(str(path))} {error}"]) from None


def bases(environ: Mapping[str, str]) -> list[str]:
    """The registries to ask, in order."""
    named = [each.rstrip("/") for each in re.split(r"[\s,]+", environ.get(VARIABLE, "")) if each]
    return named or [OFFICIAL]


async def look_up(name: str, environ: Mapping[str, str], *, allow_private: bool = False) -> Listed:
    """Ask the registries for a server, one after the other. Raises `ConfigError`."""
    from mcpx.wire.fetch import Fetcher

    found = _NAME.fullmatch(name)
    if found is None:
        raise ConfigError([f"error: {one_line(name)} is no name of a registry"])
    path = f"/v0.1/servers/{quote(f'{found[1]}/{found[2]}', safe='')}/versions/{quote(found[3] or 'latest', safe='')}"
    fetcher = Fetcher(environ)
    problems: list[str] = []
    try:
        for base in bases(environ):
            try:
                answer = await _asked(fetcher, base + path, allow_private)
            except ConfigError as error:
                problems += error.problems
                continue
            host = parse(base).shown_host
            if answer.status == 200:
                try:
                    text = answer.body.decode("utf-8-sig")
                except UnicodeDecodeError:
                    raise ConfigError(
                        [f"error: {host} answered with something that is no text"]
                    ) from None
                listed = of_text(text, host)
                if listed.name != f"{found[1]}/{found[2]}":
                    raise ConfigError(
                        [f"error: {host} answered with another server, {listed.name}"]
                    )
                return listed
            what = (
                f"knows no {name}"
                if answer.status == 404
                else f"answered with status {answer.status}"
            )
            problems.append(f"error: {host} {what}")
    finally:
        await fetcher.close()
    raise ConfigError([*problems[:-1], f"{problems[-1]}\n  {INSTEAD}"])


async def _asked(fetcher: "Fetcher", url: str, allow_private: bool) -> "Answer":
    return await fetched(
        fetcher,
        url,
        what="the registry",
        limit=MAX_DOCUMENT,
        trusts_first=True,
        allow_private=allow_private,
    )


async def fetched(
    fetcher: "Fetcher",
    url: str,
    *,
    what: str,
    limit: int,
    timeout: float = TIMEOUT,
    trusts_first: bool = False,
    allow_private: bool = False,
) -> "Answer":
    """The answer at an address. `trusts_first`: somebody named it themselves, so it may be private;
    where it leads to was named by nobody. Raises `ConfigError`."""
    from mcpx.wire.fetch import Fetch, FetchFailed

    try:
        first = parse(url)
        origin = (first.scheme, first.host, first.port)
        for _ in range(REDIRECTS + 1):
            here = parse(url)
            ours = trusts_first and (here.scheme, here.host, here.port) == origin
            headers = (("Accept", "application/json, */*;q=0.5"),)
            asked = Fetch(
                url=url,
                headers=headers,
                timeout=timeout,
                limit=limit,
                redirects=0,
                allow_private=allow_private or ours,
            )
            answer = await fetcher.fetch(asked)
            location = answer.headers.first.get(b"location")
            if answer.status not in (301, 302, 303, 307, 308) or location is None:
                return answer
            url = urljoin(url, location.decode("utf-8", "replace").strip())
            if first.tls and not url.lower().startswith("https:"):
                raise ConfigError([f"error: {what} redirects from https to something else"])
    except BadAddress as problem:
        raise ConfigError([f"error: {what}: {problem}"]) from None
    except FetchFailed as error:
        hint = "; --allow-private lets it through" if error.forbidden and not allow_private else ""
        raise ConfigError([f"error: {what} cannot be reached: {error}{hint}"]) from None
    except ValueError:
        raise ConfigError([f"error: {what}: an address that cannot be asked"]) from None
    raise ConfigError([f"error: {what}: more than {REDIRECTS} redirects"])


def remotes_of(listed: Listed) -> Sequence[Json]:
    return [as_object(each) for each in as_list(listed.document.get("remotes"))]


def packages_of(listed: Listed) -> Sequence[Json]:
    return [as_object(each) for each in as_list(listed.document.get("packages"))]
