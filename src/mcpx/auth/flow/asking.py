"""The page a person opens to sign in, and what the browser comes back with.

Promised: each asking has a state and a verifier of its own, 256 random bits, and is answered once;
an answer that names another issuer is refused (RFC 9207), errors included.
"""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlencode

from mcpx.auth.flow.clients import Client
from mcpx.auth.flow.discovery import Found
from mcpx.base.text import one_line
from mcpx.model.errors import Unproved

OFFLINE = "offline_access"
LONGEST_SCOPE = 4096
LONGEST_CODE = 8192


@dataclass(frozen=True, slots=True)
class Asking:
    found: Found
    client: Client
    redirect: str
    scope: str
    state: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(48), repr=False)

    @property
    def url(self) -> str:
        digest = hashlib.sha256(self.verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": self.client.id,
            "redirect_uri": self.redirect,
            "state": self.state,
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
            "resource": self.found.resource,
        }
        if self.scope:
            query["scope"] = self.scope
        if OFFLINE in self.scope.split():
            query["prompt"] = "consent"  # OpenID Connect Core, 11
        place = self.found.issuer.authorize
        return f"{place}{'&' if '?' in place else '?'}{urlencode(query)}"

    def code(self, query: Mapping[str, str]) -> str:
        """What the browser brought, if it is the answer to this. Raises `Unproved`."""
        issuer, said = self.found.issuer, query.get("iss")
        if not hmac.compare_digest(query.get("state", "").encode(), self.state.encode()):
            raise Unproved(
                "this is not the answer to what was asked; open the sign-in page again",
                sign_in=True,
            )
        if said is None and issuer.says_iss:
            raise Unproved(
                "the answer does not say whose it is, though its server says it always does",
                sign_in=True,
            )
        if said is not None and said != issuer.issuer:
            raise Unproved(f"the answer is of another issuer: {one_line(said)}", sign_in=True)
        if (error := query.get("error")) is not None:
            words = [one_line(word) for word in (error, query.get("error_description", "")) if word]
            raise Unproved(f"nobody was signed in: {': '.join(words)}", sign_in=True)
        code = query.get("code", "")
        if not 0 < len(code) <= LONGEST_CODE:
            raise Unproved("the answer has no code in it", sign_in=True)
        return code


def union(*scopes: str) -> str:
    """All of them, each once, in their order. Raises `Unproved` where that is too much to ask
    for."""
    merged = " ".join(dict.fromkeys(" ".join(scopes).split()))
    if len(merged) > LONGEST_SCOPE:
        raise Unproved(
            "it has more scopes than a sign-in can ask for: name those you need in 'scope' (type: "
            "oauth)"
        )
    return merged


def first_scope(configured: str, challenged: str | None, found: Found) -> str:
    """What to ask for: as configured, else as the server said, else all that the resource has, else
    nothing; and to stay signed in where the issuer knows that."""
    if configured:
        return union(configured)
    wanted = union(challenged or " ".join(found.scopes or ()))
    return union(wanted, OFFLINE) if wanted and OFFLINE in found.issuer.scopes else wanted
