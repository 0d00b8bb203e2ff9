"""Encryption of what is kept: AES-GCM by a key of the user's (`MCPX_KEY`), else by one of ours in
the system's keyring.

Promised: one way for all that is sealed (sign-ins, `enc:` values of a configuration); nothing of a
key or of what was sealed is in a `repr` or an error. A passphrase is made hard to guess; a key that
`new_key` made is so already. No promise: that nobody who can read this process's memory or
environment can read it.
"""

import base64
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from mcpx.auth import keychain
from mcpx.auth.keychain import NoKeyring
from mcpx.model.errors import McpxError

SCRYPT = {"n": 2**14, "r": 8, "p": 1}
"""40 ms and 16 MB, once for each salt: so much a guess at a passphrase costs too."""
PREFIX = "enc:v1:"
"""What an encrypted value begins with."""

Source = Literal["MCPX_KEY", "keyring"]
_SOURCES: tuple[Source, ...] = ("MCPX_KEY", "keyring")
_MADE = re.compile(r"mcpxkey-[A-Za-z0-9_-]{43}")
"""A key that nobody can guess."""
_WHERE = b"mcpx config value"
_SALT, _NONCE, _TAG = 16, 12, 16
_KEYS = 64
"""Derived keys that are remembered."""

_derived: dict[tuple[bytes, bytes], bytes] = {}


class BadSeal(McpxError):
    """It cannot be opened: another key, or damaged. Says why and what to do, nothing of what is in
    it."""


class NoKey(BadSeal):
    """There is no key to open it with."""


@dataclass(frozen=True, slots=True)
class Secret:
    """What keys are derived from."""

    source: Source
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Sealed:
    salt: bytes
    nonce: bytes
    data: bytes


def new_key() -> str:
    return f"mcpxkey-{secrets.token_urlsafe(32)}"


def given(environ: Mapping[str, str]) -> Secret | None:
    """`MCPX_KEY`."""
    text = environ.get("MCPX_KEY")
    return Secret("MCPX_KEY", text) if text else None


def from_keyring() -> Secret | None:
    """A key of our own in the system's keyring, made when it is not there. Raises `NoKeyring`."""
    held = keychain.of_our_own(lambda: secrets.token_urlsafe(32))
    return Secret("keyring", held) if held else None


def seal(secret: Secret, plain: bytes, where: bytes, salt: bytes | None = None) -> Sealed:
    """`where`: what it is, so that it is taken for nothing else."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    salt, nonce = salt or os.urandom(_SALT), os.urandom(_NONCE)
    return Sealed(salt, nonce, AESGCM(_key(secret, salt)).encrypt(nonce, plain, where))


def unseal(secret: Secret, sealed: Sealed, where: bytes) -> bytes | None:
    """None: by another key, or damaged."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(_key(secret, sealed.salt)).decrypt(sealed.nonce, sealed.data, where)
    except (InvalidTag, ValueError):
        return None


def _key(secret: Secret, salt: bytes) -> bytes:
    text = secret.text.encode(errors="surrogateescape")
    if _MADE.fullmatch(secret.text):
        return hmac.digest(text, salt, "sha256")
    whose = (hashlib.sha256(text).digest(), salt)
    known = _derived.get(whose)
    if known is None:
        known = hashlib.scrypt(text, salt=salt, dklen=32, maxmem=64 * 2**20, **cast(Any, SCRYPT))
        if len(_derived) >= _KEYS:
            _derived.clear()
        _derived[whose] = known
    return known


# Values of a configuration
# ---------------------------------------------------------------------------------------


def encrypt(text: str, environ: Mapping[str, str]) -> str:
    """A value for a config file. Raises `NoKey`."""
    secret = given(environ)
    if secret is None:
        try:
            secret = from_keyring()
        except NoKeyring as error:
            raise NoKey(f"there is no key: MCPX_KEY is not set, and {error}") from None
    if secret is None:
        raise NoKey("there is no key: MCPX_KEY is not set, and the keyring keeps none")
    sealed = seal(secret, text.encode("utf-8", "surrogatepass"), _WHERE)
    raw = bytes([_SOURCES.index(secret.source)]) + sealed.salt + sealed.nonce + sealed.data
    return PREFIX + base64.urlsafe_b64encode(raw).decode().rstrip("=")


def decrypt(text: str, environ: Mapping[str, str]) -> str:
    """What stands in such a value. Raises `BadSeal`."""
    text = text.strip()
    if not text.startswith(PREFIX):
        raise BadSeal("an encrypted value of a form that this mcpx does not know")
    body = text.removeprefix(PREFIX).replace("+", "-").replace("/", "_").rstrip("=")
    try:
        if not re.fullmatch(r"[A-Za-z0-9_-]+", body):
            raise ValueError
        raw = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))
    except ValueError:
        raw = b""
    if len(raw) < 1 + _SALT + _NONCE + _TAG or raw[0] >= len(_SOURCES):
        raise BadSeal("an encrypted value that is damaged or not whole")
    secret = _secret_of(_SOURCES[raw[0]], environ)
    ends = (1 + _SALT, 1 + _SALT + _NONCE)
    plain = unseal(secret, Sealed(raw[1 : ends[0]], raw[ends[0] : ends[1]], raw[ends[1] :]), _WHERE)
    if plain is None:
        where = "MCPX_KEY" if secret.source == "MCPX_KEY" else "key in the keyring"
        raise BadSeal(f"an encrypted value that was made with another {where}, or is damaged")
    return plain.decode("utf-8", "surrogatepass")


def _secret_of(source: Source, environ: Mapping[str, str]) -> Secret:
    if source == "MCPX_KEY":
        secret = given(environ)
        if secret is None:
            raise NoKey("an encrypted value, and MCPX_KEY is not set")
        return secret
    try:
        secret = from_keyring()
    except NoKeyring as error:
        raise NoKey(f"an encrypted value whose key is in the keyring, and {error}") from None
    if secret is None:
        raise NoKey("an encrypted value whose key is in the keyring, which keeps none")
    return secret
