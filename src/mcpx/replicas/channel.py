"""Encrypted connections between replicas, which prove to each other that they hold the key of their
store.

A connection begins with a handshake:

    client to server   MAGIC, nonce, ids of the client's keys
    server to client   MAGIC, nonce, id of the key that both use, proof
    client to server   proof

A proof is an HMAC over the whole handshake and the id of the replica that the client wants to
reach, so that it is worth nothing on another connection or at another replica. Both sides then
derive one AES-GCM key for each direction. A record is its length, the time of its making, and the
ciphertext. Its number is the nonce, so that a record is accepted once and in order. A record that a
client made more than `MAX_AGE_SECONDS` ago ends the connection.

Guarantee: a party without the key that relays a connection cannot read, change, repeat, or reorder
what the replicas send. It can delay a record, cut the connection, and see the number and size of
records. No guarantee: forward secrecy.
"""

import asyncio
import hmac
import logging
import secrets
from collections.abc import Callable, Iterable
from struct import Struct
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, cast

from mcpx.replicas.seals import KEYS, Seals
from mcpx.wire.http_dial import Secured

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

log = logging.getLogger(__name__)

MAX_AGE_SECONDS: Final = 10.0
MAX_RECORD_BYTES: Final = 65536
"""Of plaintext."""
WARN_SECONDS: Final = 30.0
"""Between two warnings about failed handshakes."""

MAGIC: Final = b"mcpx/1"
_NONCE: Final = 32
_KEY_ID: Final = 8
_PROOF: Final = 32
_HELLO: Final = len(MAGIC) + _NONCE + KEYS * _KEY_ID
_ANSWER: Final = len(MAGIC) + _NONCE + _KEY_ID + _PROOF
_TAG: Final = 16
_HEADER: Final = Struct(">IQ")
"""Bytes of the ciphertext, and milliseconds since the handshake by the clock of the server."""


class Unproved(ConnectionError):
    """The other side of a connection did not prove that it is the wanted replica."""


class Channel(asyncio.Transport, asyncio.Protocol):
    """One connection: a protocol for the socket below, and the transport of the protocol above
    (`inner`)."""

    __slots__ = (
        *(
            "_base",
            "_buffer",
            "_inner",
            "_is_open",
            "_open_key",
            "_raw",
            "_read",
            "_seal_key",
            "_seals",
            "_synced",
        ),
        *("_target", "_written"),
    )

    def __init__(self, inner: asyncio.Protocol, seals: Seals, target: str) -> None:
        """`target`: the id of the replica that accepts the connection."""
        self._inner = inner
        self._seals = seals
        self._target = target.encode()
        self._raw = cast(asyncio.Transport, None)
        self._buffer = bytearray()
        self._is_open = False
        self._seal_key = cast("AESGCM", None)
        self._open_key = cast("AESGCM", None)
        self._written = 0
        self._read = 0
        # The time since the handshake is the server's: a client adds the time since the last record
        # that it received. So clocks that run at different speeds do not drift apart on a
        # connection that is used for days.
        self._base = 0
        self._synced = monotonic()

    # The handshake
    # ---------------------------------------------------------------------------------------------

    def _shake_hands(self) -> None:
        """Read as much of the handshake as has arrived. Raises `Unproved`."""
        raise NotImplementedError

    def _accept(self, secret: bytes, seals: bytes, opens: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._seal_key = AESGCM(hmac.digest(secret, seals, "sha256"))
        self._open_key = AESGCM(hmac.digest(secret, opens, "sha256"))
        self._is_open = True

    def _taken(self, size: int) -> bytes:
        """The next bytes of the handshake."""
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    # The protocol of the socket
    # --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        try:
            if not self._is_open:
                self._shake_hands()
            if self._is_open:
                self._read_records()
        except Unproved as error:
            self._fail(error)

    def _fail(self, error: Unproved) -> None:
        self._raw.abort()

    def _read_records(self) -> None:
        """Raises `Unproved`."""
        buffer, at = self._buffer, 0
        try:
            while len(buffer) - at >= _HEADER.size and not self._raw.is_closing():
                size, made_at = _HEADER.unpack_from(buffer, at)
                if not _TAG < size <= MAX_RECORD_BYTES + _TAG:
                    raise Unproved("a record has a wrong length")
                end = at + _HEADER.size + size
                if len(buffer) < end:
                    break
                record = memoryview(bytes(buffer[at:end]))
                at = end
                plain = self._opened(record[_HEADER.size :], record[: _HEADER.size])
                self._note_time(made_at)
                self._inner.data_received(plain)
        finally:
            del buffer[:at]

    def _opened(self, ciphertext: memoryview, header: memoryview) -> bytes:
        from cryptography.exceptions import InvalidTag

        number = self._read
        self._read += 1
        try:
            return self._open_key.decrypt(number.to_bytes(12), ciphertext, header)
        except InvalidTag:
            raise Unproved("a record was changed, repeated, or is out of order") from None

    def _now(self) -> int:
        """Milliseconds since the handshake."""
        return self._base + int(1000 * (monotonic() - self._synced))

    def _note_time(self, made_at: int) -> None:
        """Raises `Unproved` if the record is too old."""

    def eof_received(self) -> None:
        # The end of the stream is not authenticated, so it never counts as the end of a response.
        self._raw.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    # The transport of the inner protocol
    # -----------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._is_open:
            return  # The server refuses a connection before the handshake is over.
        if len(data) <= MAX_RECORD_BYTES:
            self._raw.write(self._sealed(bytes(data)))
            return
        view = memoryview(data)
        starts = range(0, len(view), MAX_RECORD_BYTES)
        pieces = [bytes(view[at : at + MAX_RECORD_BYTES]) for at in starts]
        self._raw.write(b"".join(map(self._sealed, pieces)))

    def _sealed(self, plain: bytes) -> bytes:
        if not plain:
            return b""
        header = _HEADER.pack(len(plain) + _TAG, self._now())
        number = self._written
        self._written += 1
        return header + self._seal_key.encrypt(number.to_bytes(12), plain, header)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        for data in list_of_data:
            self.write(data)

    def can_write_eof(self) -> bool:
        return False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._raw.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._raw.is_closing()

    def close(self) -> None:
        self._raw.close()

    def abort(self) -> None:
        # None until it is connected.
        if self._raw is not None:  # pyright: ignore[reportUnnecessaryComparison]
            self._raw.abort()

    def get_write_buffer_size(self) -> int:
        return self._raw.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._raw.set_write_buffer_limits(high, low)

    def is_reading(self) -> bool:
        return self._raw.is_reading()

    def pause_reading(self) -> None:
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        self._raw.resume_reading()


class ServerChannel(Channel):
    """The side that accepts a connection. Its inner protocol is connected at once, so that it
    counts and bounds connections whose handshake does not end, and receives data after the
    handshake only."""

    __slots__ = ("_expected", "_secret")

    def __init__(self, inner: asyncio.Protocol, seals: Seals, target: str) -> None:
        super().__init__(inner, seals, target)
        self._secret = b""
        self._expected = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._inner.connection_made(self)

    def _shake_hands(self) -> None:
        if not self._secret:
            if not MAGIC.startswith(self._buffer[: len(MAGIC)]):
                raise Unproved("the client does not speak the protocol of replicas")
            if len(self._buffer) < _HELLO:
                return
            self._answer(self._taken(_HELLO))
        if len(self._buffer) >= _PROOF:
            if not hmac.compare_digest(self._taken(_PROOF), self._expected):
                raise Unproved("the client did not prove that it holds the key")
            self._accept(self._secret, b"server to client", b"client to server")

    def _answer(self, hello: bytes) -> None:
        offered = {hello[at : at + _KEY_ID] for at in range(len(MAGIC) + _NONCE, _HELLO, _KEY_ID)}
        shared = [(id, key) for id, key in _keys(self._seals).items() if id in offered]
        if not shared:
            raise Unproved("the client has none of the keys of this replica")
        id, key = shared[0]
        start = MAGIC + secrets.token_bytes(_NONCE) + id
        self._secret = _secret(key, hello, start, self._target)
        self._expected = hmac.digest(self._secret, b"client proof", "sha256")
        self._synced = monotonic()
        self._raw.write(start + hmac.digest(self._secret, b"server proof", "sha256"))

    def _fail(self, error: Unproved) -> None:
        _warn(
            "a connection to the port for replicas from %s was refused: %s", _peer(self._raw), error
        )
        super()._fail(error)

    def _note_time(self, made_at: int) -> None:
        age = (self._now() - made_at) / 1000
        if age > MAX_AGE_SECONDS:
            raise Unproved(f"a request is {age:.0f} s old")


class ClientChannel(Channel, Secured):
    """The side that connects. Its inner protocol is connected after the handshake."""

    __slots__ = ("_hello", "ready")

    def __init__(self, inner: asyncio.Protocol, seals: Seals, target: str) -> None:
        super().__init__(inner, seals, target)
        self._hello = b""
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done after the handshake. Raises OSError if it fails."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        ids = b"".join(_keys(self._seals)).ljust(KEYS * _KEY_ID, b"\0")
        self._hello = MAGIC + secrets.token_bytes(_NONCE) + ids
        self._raw.write(self._hello)

    def _shake_hands(self) -> None:
        if not MAGIC.startswith(self._buffer[: len(MAGIC)]):
            raise Unproved("it does not speak the protocol of replicas")
        if len(self._buffer) < _ANSWER:
            return
        answer = self._taken(_ANSWER)
        start, proof = answer[:-_PROOF], answer[-_PROOF:]
        key = _keys(self._seals).get(start[-_KEY_ID:])
        if key is None:
            secret = b""
        else:
            secret = _secret(key, self._hello, start, self._target)
        if not secret or not hmac.compare_digest(
            hmac.digest(secret, b"server proof", "sha256"), proof
        ):
            raise Unproved("it did not prove that it holds the key")
        self._raw.write(hmac.digest(secret, b"client proof", "sha256"))
        self._synced = monotonic()
        self._accept(secret, b"client to server", b"server to client")
        self._inner.connection_made(self)
        if not self.ready.done():
            self.ready.set_result(None)

    def _fail(self, error: Unproved) -> None:
        if self._is_open:
            _warn("a connection to the replica at %s was ended: %s", _peer(self._raw), error)
        else:
            _warn(
                "%s is not the replica that the store names; no request was sent: %s",
                _peer(self._raw),
                error,
            )
            self._settle(error)
        super()._fail(error)

    def _settle(self, error: Exception) -> None:
        if not self.ready.done():
            self.ready.set_exception(error)
            self.ready.exception()  # The waiter may have been cancelled.

    def _note_time(self, made_at: int) -> None:
        self._base, self._synced = made_at, monotonic()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._is_open:
            super().connection_lost(exc)
        else:
            self._settle(ConnectionError("the replica closed the connection during the handshake"))


def accepting(seals: Seals, me: str) -> Callable[[asyncio.Protocol], ServerChannel]:
    """For `HttpServer`: channels of connections to this replica."""
    return lambda inner: ServerChannel(inner, seals, me)


def connecting_to(target: str, seals: Seals) -> Callable[[asyncio.Protocol], ClientChannel]:
    """For `Pool`: channels of connections to another replica."""
    return lambda inner: ClientChannel(inner, seals, target)


def _keys(seals: Seals) -> dict[bytes, bytes]:
    """By id, the newest first."""
    return {hmac.digest(key, b"id", "sha256")[:_KEY_ID]: key for key in seals.channel_keys}


def _secret(key: bytes, hello: bytes, start: bytes, target: bytes) -> bytes:
    """The secret of one connection. `hello` and `start` have fixed lengths."""
    return hmac.digest(key, hello + start + target, "sha256")


def _peer(raw: asyncio.Transport) -> str:
    peer = raw.get_extra_info("peername")
    if isinstance(peer, tuple):
        return f"{peer[0]}:{peer[1]}"
    return "an unknown address"


class _Warned:
    at = float("-inf")


def _warn(text: str, *values: object) -> None:
    """At most once every `WARN_SECONDS`."""
    if monotonic() - _Warned.at >= WARN_SECONDS:
        _Warned.at = monotonic()
        log.warning(text, *values)
