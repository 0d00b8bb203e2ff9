"""Public names and URIs: from what a server calls a thing to what clients call it, and for URIs
back again.

Promised: pure functions of their arguments; every name that leaves `safe_name` has only characters
clients take and fits the limit; `unwrap_uri` never raises, whatever it is fed. Not promised: that
two names stay apart. A safe name is one-to-one in practice only (24 bits of hash, and servers may
be hostile); the catalog settles what collides, and it is the catalog, not the name, that knows the
way back.
"""

import base64
import binascii
import json
import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal, cast
from urllib.parse import unquote

SHORTEST_LIMIT = 16
"""Smallest `max_length`: a tag takes seven characters, and names must still be tellable apart by
people."""
LONGEST_URI = 65_536
"""Longest URI of a server that is listed, in characters."""

WRAPPED = "proxy://resource/"
# Room for LONGEST_URI in its worst spelling (an escaped surrogate pair is 12 characters, before
# base64).
_LONGEST_WRAPPED = 2 * 1024 * 1024

# "::" is legal only as a pair, so it is eaten as one; a colon on its own falls to the second
# branch.
_ODD = {"_": re.compile(r"[^A-Za-z0-9_.-]"), "::": re.compile(r"::|[^A-Za-z0-9_.-]")}
_PLAIN = {"_": re.compile(r"[A-Za-z0-9_.-]+"), "::": re.compile(r"(?:[A-Za-z0-9_.-]|::)+")}
_READINGS = 3
"""How often percent signs are read: some read what was read already."""
_URL_SAFE = str.maketrans("-_", "+/")


@dataclass(frozen=True, slots=True)
class Naming:
    """How public names are made, as the user wants it."""

    separator: Literal["_", "::"] = "_"
    """Between a prefix and a name."""
    prefix: Literal["configured", "always"] = "configured"
    """`always`: every tool and prompt carries its server's prefix, or the server's name when it has
    none; one that begins with that name already is left as it is."""
    uris: Literal["wrapped", "plain"] = "wrapped"
    """`wrapped`: as `proxy://resource/…`, so that no two servers clash; `plain`: as the servers
    write them. App pages (`ui://`) contain the name of their server in both cases."""
    max_length: int = 64
    """Longest name clients are shown; longer ones are cut and end in six hex digits."""

    def __post_init__(self) -> None:
        if self.max_length < SHORTEST_LIMIT:
            raise ValueError(
                f"naming.max_length is at least {SHORTEST_LIMIT}, not {self.max_length}"
            )


def public_name(server: str, native: str, prefix: str | None, naming: Naming) -> str:
    """The name a tool or prompt gets when nobody else wants it, before it is made safe (NAM-1,
    NAM-2)."""
    front = prefix or (server if naming.prefix == "always" else "")
    if not front or (not prefix and _names_itself(server, native, naming)):
        return native
    return f"{front}{naming.separator}{native}"


def may_belong(public: str, server: str, prefix: str | None, naming: Naming) -> bool:
    """Whether a public name looks like one of this server's; without prefixes that cannot be
    told."""
    front = prefix or (server if naming.prefix == "always" else "")
    named = bool(front) and public.startswith(f"{front}{naming.separator}")
    return named or (bool(front) and not prefix and _names_itself(server, public, naming))


def _names_itself(server: str, native: str, naming: Naming) -> bool:
    """Whether a name begins with its server's already: `git_status` of `git` needs no second
    `git_`.

    With `::` only that counts as a beginning: clients take such names apart."""
    size = len(server)
    behind = (
        native[size:].lstrip("_-.:/")
        if naming.separator == "_"
        else native[size:].removeprefix("::")
    )
    return native[:size].lower() == server.lower() and 0 < len(behind) < len(native) - size


def safe_name(name: str, naming: Naming) -> str:
    """The name if clients take it, else a legal one ending in `_` and six hex digits of the whole
    (NAM-5)."""
    if len(name) <= naming.max_length and _PLAIN[naming.separator].fullmatch(name):
        return name
    return tagged_name(name, name, naming)


def tagged_name(name: str, seed: str, naming: Naming) -> str:
    """As much of `name` as fits, made legal, then `_` and six hex digits of `seed`."""
    # Cut first: a "::" that the cut breaks is then seen as the lone colon it has become.
    body = _ODD[naming.separator].sub(_legal, name[: naming.max_length - 7])
    return f"{body}_{sha256(seed.encode('utf-8', 'surrogatepass')).hexdigest()[:6]}"


def _legal(odd: re.Match[str]) -> str:
    return "::" if odd[0] == "::" else "_"


def wrap_uri(server: str, uri: str) -> str:
    """A URI that says which server it belongs to (NAM-4)."""
    # Escaped to ASCII, so that a lone surrogate, which UTF-8 cannot carry, survives the trip.
    text = json.dumps({"server": server, "uri": uri}, separators=(",", ":"))
    return WRAPPED + base64.urlsafe_b64encode(text.encode("ascii")).rstrip(b"=").decode("ascii")


def unwrap_uri(uri: str) -> tuple[str, str] | None:
    """(server, the server's own URI), or None if this is not one of ours. Reads both base64
    alphabets."""
    if not uri.startswith(WRAPPED) or len(uri) > _LONGEST_WRAPPED:
        return None
    fields = decode_base64_json(uri[len(WRAPPED) :])
    if not isinstance(fields, dict):
        return None
    found = cast(dict[str, Any], fields)
    server, native = found.get("server"), found.get("uri")
    return (server, native) if isinstance(server, str) and isinstance(native, str) else None


def spellings(uri: str) -> list[str]:
    """What a server may take a URI for: as it is, with its percent signs read, with `..` followed,
    its scheme and host in lower case. Whoever must not read one of these must not read it under
    another."""
    found = [uri]
    for _ in range(_READINGS):
        if (read := unquote(found[-1])) == found[-1]:
            break
        found.append(read)
    return list(
        dict.fromkeys([*found, *(straight for each in found for straight in _straight(each))])
    )


def _straight(uri: str) -> tuple[str, ...]:
    """To some the host is where paths begin, to others a step of them like any."""
    scheme, separator, rest = uri.replace("\\", "/").partition("://")
    if not separator:
        return ()
    host, slash, path = rest.partition("/")
    begin = f"{scheme.lower()}://"
    above = _followed(rest)
    return f"{begin}{host.lower()}{slash}{_followed(path)}", f"{begin}{'/' * (not host)}{above}"


def _followed(path: str) -> str:
    steps: list[str] = []
    for step in path.split("/"):
        if step == "..":
            del steps[-1:]
        elif step not in (".", ""):
            steps.append(step)
    return "/".join(steps) + "/" * (path.endswith("/") and bool(steps))


def decode_base64_json(text: str) -> object:
    """The JSON inside, from either base64 alphabet with or without padding; None for anything
    else."""
    text = text.rstrip("=").translate(_URL_SAFE)
    try:
        return json.loads(base64.b64decode(text + "=" * (-len(text) % 4), validate=True))
    except (ValueError, binascii.Error, RecursionError):
        return None
