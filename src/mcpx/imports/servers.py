"""Which address an operation is at.

Promised: an address that a configuration takes, with nothing of a user or password in it, or a
reason.
"""

import re
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any
from urllib.parse import urljoin, urlsplit, urlunsplit

from mcpx.imports.made import Reference
from mcpx.imports.texts import one_line
from mcpx.model.call import as_list, as_object
from mcpx.wire.address import BadAddress, parse
from mcpx.wire.reach import is_public


class NoServer(Exception):
    """There is no usable address; the words say why."""


def address(levels: Sequence[Any], base: str | None) -> str:
    """The first of the innermost list of `servers`; `base`: where the document came from."""
    listed = next((each for each in map(as_list, levels) if each), list[Any]())
    server = as_object(listed[0]) if listed else {}
    given = server.get("url")
    url = given if isinstance(given, str) else "/"
    variables = as_object(server.get("variables"))
    for name in dict.fromkeys(re.findall(r"\{([^{}]*)\}", url)):
        filled = as_object(variables.get(name)).get("default")
        if not isinstance(filled, str | int | float):
            raise NoServer(
                f"the server address has a variable without a default ({one_line(name, 40)}): use "
                "--server"
            )
        url = url.replace(f"{{{name}}}", str(filled))
    if base is not None:
        url = urljoin(base, url)
    elif not re.match(r"(?i)https?://", url):
        raise NoServer("the document does not say at which address its server is: use --server URL")
    return checked(url)


def checked(url: str) -> str:
    """The address without what does not belong to it; one with references is taken as it is. Raises
    `NoServer`."""
    if "${" in url:
        return Reference(url.rstrip("/"))
    try:
        parts = urlsplit(url)
        plain = urlunsplit(
            (parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", "")
        )
        parse(plain)
    except BadAddress as problem:
        raise NoServer(
            f"the server address cannot be used ({problem.what}): use --server URL"
        ) from None
    except ValueError:
        raise NoServer("the server address cannot be used: use --server URL") from None
    if "{" in plain or "}" in plain or not plain.isprintable():
        raise NoServer("the server address cannot be used: use --server URL")
    return plain


def is_private(url: str) -> bool:
    """Whether an address is plainly not of the public internet. What a name resolves to is not
    asked."""
    try:
        host = parse(url).host
    except BadAddress:
        return False
    if host == "localhost" or host.endswith((".localhost", ".local", ".internal")):
        return True
    try:
        return not is_public(ip_address(host))
    except ValueError:
        return False
