"""What is said to whoever is not let in: why, and where to learn whom to ask for a token (RFC 6750,
RFC 9728)."""

from mcpx.front.identity.badge import Refusal
from mcpx.front.proxies import Arrival
from mcpx.front.reception import Reception
from mcpx.front.routes import RESOURCE, resource_of
from mcpx.wire import codec
from mcpx.wire.exchange import Exchange


def refuse(
    exchange: Exchange, refusal: Refusal, reception: Reception, arrival: Arrival | None
) -> None:
    about: list[str] = []
    if reception.publishes:
        about += [f'error="{refusal.error}"'] if refusal.error is not None else []
        about += [f'scope="{" ".join(refusal.scopes)}"'] if refusal.scopes else []
        called = reception.guard.called(exchange, arrival)
        if called is not None:
            about.append(
                f'resource_metadata="{called}{RESOURCE}{resource_of(exchange.path) or ""}"'
            )
    if refusal.status in (401, 403):
        more = [("www-authenticate", f"Bearer {', '.join(about)}".rstrip())]
    else:
        more = []
    if refusal.retry_after is not None:
        more.append(("retry-after", str(refusal.retry_after)))
    exchange.reply(refusal.status, refusal.text.encode(), "text/plain", more)


def tell_metadata(exchange: Exchange, reception: Reception, arrival: Arrival | None) -> None:
    """Whom to ask for tokens that are let in here. It says the same of every profile, be there one
    or not."""
    path = exchange.path
    if path.startswith(RESOURCE):
        rest = path[len(RESOURCE) :]
    else:
        rest = None
    if not rest:
        place = rest
    else:
        place = resource_of(rest)
    called = reception.guard.called(exchange, arrival)
    if place is None or called is None:
        about = None
    else:
        about = reception.metadata(called + place)
    if about is None:
        exchange.reply(404, b"not found", "text/plain")
    elif exchange.method in ("GET", "HEAD"):
        exchange.reply(200, codec.dump(about))
    else:
        exchange.reply(405, b"", None, [("allow", "GET, HEAD")])
