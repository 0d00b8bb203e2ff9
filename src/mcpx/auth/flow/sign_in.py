"""Sign-in by a user in a browser, with the authorization code flow.

Each sign-in page has a state and a verifier of its own, 256 random bits each, and is answered once.
A response that names another issuer is refused (RFC 9207), also if it is an error. Only one page is
open at a time.
"""

import asyncio
import base64
import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlencode

from mcpx.auth.credentials import Purpose, Refusal
from mcpx.auth.flow import clients
from mcpx.auth.flow.challenge import Challenge, bearer
from mcpx.auth.flow.clients import Client
from mcpx.auth.flow.discovery import Found, discover, same_issuer
from mcpx.auth.flow.grant import Grant, HeldGrant
from mcpx.auth.flow.web import Web, checked, parse_server
from mcpx.base.text import one_line
from mcpx.model.errors import Unproved

OFFLINE = "offline_access"
MAX_SCOPE_CHARACTERS = 4096
MAX_CODE_CHARACTERS = 8192
PREPARE_SECONDS = 45.0
MAX_REPEATS = 1
"""Sign-ins for scopes that were requested before, if the server still refuses."""


@dataclass(frozen=True, slots=True)
class Page:
    """The page that the user opens."""

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
            query["prompt"] = "consent"  # OpenID Connect Core, section 11.
        endpoint = self.found.issuer.authorize
        separator = "&" if "?" in endpoint else "?"
        return f"{endpoint}{separator}{urlencode(query)}"

    def code(self, query: Mapping[str, str]) -> str:
        """Return the code from the browser's query. Raises `Unproved`."""
        issuer, named_issuer = self.found.issuer, query.get("iss")
        if not hmac.compare_digest(query.get("state", "").encode(), self.state.encode()):
            raise Unproved(
                "this is not the answer to what was asked; open the sign-in page again",
                sign_in=True,
            )
        if named_issuer is None and issuer.says_iss:
            raise Unproved(
                "the answer does not say whose it is, though its server says it always does",
                sign_in=True,
            )
        if named_issuer is not None and named_issuer != issuer.issuer:
            raise Unproved(
                f"the answer is of another issuer: {one_line(named_issuer)}", sign_in=True
            )
        error = query.get("error")
        if error is not None:
            words = [one_line(word) for word in (error, query.get("error_description", "")) if word]
            raise Unproved(f"nobody was signed in: {': '.join(words)}", sign_in=True)
        code = query.get("code", "")
        if not 0 < len(code) <= MAX_CODE_CHARACTERS:
            raise Unproved("the answer has no code in it", sign_in=True)
        return code


class SignIn:
    """Prepares sign-in pages, and knows the one that is open."""

    def __init__(
        self,
        purpose: Purpose,
        held: HeldGrant,
        client: tuple[str, str],
        scope: str,
        issuer: str | None,
        finish: Callable[[Page, Mapping[str, str]], Awaitable[str]],
    ) -> None:
        """`client` is the configured id and secret. `finish` receives the browser's query."""
        self._purpose = purpose
        self._held = held
        self._client = client
        self._scope = scope
        self._issuer = issuer
        self._finish = finish
        self.page: Page | None = None
        self.url: str | None = None
        self.reason: tuple[int, Challenge] | None = None
        """The HTTP status and the challenge for which the page was prepared."""
        self._repeats = 0

    async def begin(self, server: str, refusal: Refusal | None) -> str:
        """Return the URL of a sign-in page. Without a refusal, a user has asked for it.

        Raises `Unproved`.
        """
        page = self.page
        is_requested = refusal is None
        if refusal is not None:
            reason = (refusal.status, bearer(refusal.challenge))
            if page is not None and reason == self.reason:
                return page.url
        else:
            reason = self.reason or (401, Challenge())
        # If the user did not come back from the open page, the issuer may not know the client.
        registers_again = is_requested and page is not None and page.client.kept
        self.reason = reason
        status, challenge = reason
        if is_requested or status != 403:
            self._repeats = 0
        former_scopes = None
        if status == 403:
            former_scopes = "" if self._held.grant is None else self._held.grant.scopes
            if not is_requested:
                self._count_repeats(challenge, former_scopes)
        return await self._prepare(server, challenge, former_scopes, registers_again)

    def _count_repeats(self, challenge: Challenge, former_scopes: str) -> None:
        """Raises `Unproved` if a server keeps requesting scopes that it was given."""
        if challenge.error != "insufficient_scope":
            raise Unproved("it does not let us in, and no other sign-in would change that")
        new_scopes = set((challenge.scope or "").split()) - set(former_scopes.split())
        if new_scopes:
            self._repeats = 0
            return
        self._repeats += 1
        if self._repeats > MAX_REPEATS:
            wanted = one_line(challenge.scope or "") or "which ones it does not say"
            raise Unproved(f"it wants scopes that it was given already: {wanted}")

    async def _prepare(
        self, server: str, challenge: Challenge, former_scopes: str | None, registers_again: bool
    ) -> str:
        try:
            async with asyncio.timeout(PREPARE_SECONDS):
                web = Web(self._purpose.fetcher, server)
                found = await discover(web, server, challenge)
                self._check_issuer(server, found)
                if former_scopes is None:
                    scope = first_scope(self._scope, challenge.scope, found)
                else:
                    wanted = challenge.scope or first_scope(self._scope, None, found)
                    scope = union(former_scopes, wanted)
                redirect = await self._purpose.callback().redirect_uri()
                client = clients.configured(found.issuer, *self._client)
                if client is None:
                    vault = self._purpose.vault()
                    client = await clients.registered(
                        web, vault, found.issuer, redirect, scope, anew=registers_again
                    )
        except TimeoutError:
            raise Unproved(
                f"who signs people in could not be found out within {PREPARE_SECONDS:.0f} s"
            ) from None
        return self.open(Page(found, client, redirect, scope))

    def is_expected(self, issuer: str) -> bool:
        return self._issuer is None or same_issuer(issuer, self._issuer)

    def _check_issuer(self, server: str, found: Found) -> None:
        """The configured client secret is for one issuer. Raises `Unproved`."""
        issuer = found.issuer.issuer
        if not self.is_expected(issuer):
            raise Unproved(
                f"the server names the authorization server {one_line(issuer)}, but 'issuer' of "
                f"the auth config is {one_line(self._issuer or '')}. Nothing is sent there. If the "
                "server is right, change 'issuer'"
            )
        has_secret = bool(self._client[1])
        if not has_secret:
            return
        if self._issuer is None:
            _require_same_host(server, found)
        grant = self._held.grant
        if grant is not None and not same_issuer(grant.issuer, issuer):
            raise Unproved(
                "it names another authorization server than before, "
                f"{checked(issuer).host}, and the client_secret was meant for that; if this is "
                "right, sign out first (mcpx auth logout)"
            )

    def open(self, page: Page) -> str:
        """Wait for the browser's answer to this page instead of another one."""
        self.close()

        async def finish(query: Mapping[str, str]) -> str:
            return await self._finish(page, query)

        self.page = page
        self.url = page.url
        self._purpose.callback().expect(page.state, finish)
        self._purpose.changed()
        return self.url

    def close(self) -> None:
        if self.page is not None:
            self._purpose.callback().forget(self.page.state)
        self.page = self.url = None

    def close_if_served(self, grant: Grant) -> bool:
        """Close the page if a grant has all its scopes."""
        if self.page is None or not set(self.page.scope.split()) <= set(grant.scopes.split()):
            return False
        self.close()
        return True

    async def reset(self) -> None:
        """Forget the page and its reason after a sign-out."""
        page = self.page
        if page is not None and page.client.kept:
            # The user did not come back from the page, so the issuer may not know the client.
            await clients.drop(self._purpose.vault(), page.found.issuer.issuer, page.redirect)
        self.close()
        self.reason = None
        self._repeats = 0


def _require_same_host(server: str, found: Found) -> None:
    """Raises `Unproved`."""
    host = parse_server(server).host
    for endpoint in (found.issuer.issuer, found.issuer.token):
        if checked(endpoint).host != host:
            raise Unproved(
                f"the server names the authorization server {one_line(found.issuer.issuer)}, "
                "which is on another host. The client secret is not sent there. If this server is "
                "right, set 'issuer' to it in the auth config"
            )


def union(*scopes: str) -> str:
    """Return each scope once, in order. Raises `Unproved` if they are too long."""
    merged = " ".join(dict.fromkeys(" ".join(scopes).split()))
    if len(merged) > MAX_SCOPE_CHARACTERS:
        raise Unproved(
            "it has more scopes than a sign-in can ask for: name those you need in 'scope' (type: "
            "oauth)"
        )
    return merged


def first_scope(configured: str, challenged: str | None, found: Found) -> str:
    """Return the configured scopes, else those of the challenge, else all of the resource.

    `offline_access` is added to scopes that are not configured, if the issuer supports it.
    """
    if configured:
        return union(configured)
    wanted = union(challenged or " ".join(found.scopes or ()))
    if wanted and OFFLINE in found.issuer.scopes:
        return union(wanted, OFFLINE)
    return wanted
