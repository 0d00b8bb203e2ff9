"""What every answer says to a browser: nothing of it may be framed, sniffed, leaked or run but our
own scripts."""

from starlette.types import Message, Send

Headers = list[tuple[bytes, bytes]]

PLAIN: Headers = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    (
        b"permissions-policy",
        b"accelerometer=(), camera=(), display-capture=(), geolocation=(), gyroscope=(), "
        b"microphone=(), midi=(), "
        b"payment=(), publickey-credentials-get=(), usb=()",
    ),
    (
        b"content-security-policy",
        b"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"cache-control", b"no-store"),
]
"""Of every answer that does not say otherwise: it is data, or a refusal. The page and its files
do."""


def page_policy(nonce: str) -> bytes:
    """For the one page there is. Styles that scripts make need the nonce; scripts are files of
    ours, and no others."""
    return (
        "default-src 'none'; script-src 'self'; "
        f"style-src 'self' 'nonce-{nonce}'; img-src 'self' data: blob:; media-src data: blob:; "
        "font-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'"
    ).encode()


def adding(send: Send, more: Headers) -> Send:
    """`send`, with headers where the answer does not have them itself."""

    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = list(message.get("headers", ()))
            names = {name.lower() for name, _ in own}
            message = {
                **message,
                "headers": [*own, *(pair for pair in more if pair[0] not in names)],
            }
        await send(message)

    return with_headers
