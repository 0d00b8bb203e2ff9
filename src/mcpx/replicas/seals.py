"""What only the replicas of one store can make and read: sealed ids, signatures, and texts that are
encrypted.

The key comes from `MCPX_KEY` where that is set; else it is made by the first replica and kept in
the store, and whoever can read the store can read what is sealed. A store that was emptied may come
back with another key, made by a replica that started just then: those that were good stay good for
what was made with them.
"""

import base64
import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from typing import Final

KEYS: Final = 4
"""Keys that are known at a time, the newest first."""
_MAC: Final = 9
"""Bytes of the seal of an id: it keeps strangers from sending us around, no more."""
_NONCE: Final = 12


def key_from(environ: Mapping[str, str]) -> bytes | None:
    """Of `MCPX_KEY`; None: it is not set."""
    text = environ.get("MCPX_KEY")
    if not text:
        return None
    given = text.encode(errors="surrogateescape")
    return hashlib.scrypt(
        given, salt=b"mcpx replicas", dklen=32, maxmem=64 * 2**20, n=2**14, r=8, p=1
    )


class Seals:
    def __init__(self, key: bytes | None = None) -> None:
        self._keys: list[bytes] = [key or secrets.token_bytes(32)]

    @property
    def key(self) -> bytes:
        """The one that new things are made with."""
        return self._keys[0]

    @property
    def fingerprint(self) -> str:
        """Tells one key from another, and nothing else of it."""
        return hmac.digest(self.key, b"fingerprint", "sha256").hex()[:32]

    @property
    def channel_keys(self) -> list[bytes]:
        """For connections between replicas, the newest first."""
        return [self._mac(key, b"channel", b"") for key in self._keys]

    def take_up(self, key: bytes) -> None:
        """From now on this one is used."""
        if key != self.key:
            self._keys = [key, *(known for known in self._keys if known != key)][:KEYS]

    # Ids
    # ----------------------------------------------------------------------------------------------

    def mint(self, owner: str) -> str:
        """A new id that tells whose it is; `owner` has no dot."""
        body = f"{owner}.{secrets.token_urlsafe(18)}"
        return f"{body}.{_shown(self._mac(self.key, b'id', body.encode())[:_MAC])}"

    def owner(self, id: str) -> str | None:
        """Whose an id is; None: it is none of ours."""
        body, _, seal = id.rpartition(".")
        owner, dot, _ = body.partition(".")
        if not dot or not body.isascii() or not seal.isascii():
            return None
        for key in self._keys:
            if hmac.compare_digest(_shown(self._mac(key, b"id", body.encode())[:_MAC]), seal):
                return owner
        return None

    # Signatures
    # ----------------------------------------------------------------------------------------------

    def sign(self, purpose: bytes, data: bytes) -> str:
        return _shown(self._mac(self.key, purpose, data))

    def signed(self, purpose: bytes, data: bytes, signature: str) -> bool:
        if not signature.isascii():
            return False
        valid = [_shown(self._mac(key, purpose, data)) for key in self._keys]
        return any(hmac.compare_digest(each, signature) for each in valid)

    @staticmethod
    def _mac(key: bytes, purpose: bytes, data: bytes) -> bytes:
        return hmac.digest(key, len(purpose).to_bytes(2) + purpose + data, "sha256")

    def name(self, purpose: bytes, data: bytes) -> str:
        """A name for a key of the store that does not reveal `data`."""
        return self._mac(self.key, purpose, data).hex()[:40]

    # Secrets
    # ----------------------------------------------------------------------------------------------

    def encrypt(self, plain: bytes, where: bytes) -> bytes:
        """`where`: what it is, so that it is taken for nothing else."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = os.urandom(_NONCE)
        return nonce + AESGCM(self._cipher_key(self.key)).encrypt(nonce, plain, where)

    def decrypt(self, sealed: bytes, where: bytes) -> bytes | None:
        """None: by another key, or damaged."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        for key in self._keys:
            try:
                return AESGCM(self._cipher_key(key)).decrypt(
                    sealed[:_NONCE], sealed[_NONCE:], where
                )
            except (InvalidTag, ValueError):
                continue
        return None

    @staticmethod
    def _cipher_key(key: bytes) -> bytes:
        return hmac.digest(key, b"encrypt", "sha256")


def _shown(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
