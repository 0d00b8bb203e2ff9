"""What an API asks its callers to show, as auth configs whose secrets stand in variables.

Promised: one auth config for each requirement that operations have, made when the first of them
asks; of several ways the first that mcpx can do. What it cannot do is told, and the command comes
without.
"""

import re
from typing import Any

from mcpx.imports.document import BadReference, Document
from mcpx.imports.made import Imported, Reference, variable
from mcpx.imports.names import Unique, constant, slug, snake
from mcpx.imports.texts import clip, one_line
from mcpx.model.call import Json, as_list, as_object, is_array
from mcpx.wire.fields import header_name_mistakes, url_mistakes


class Security:
    def __init__(self, document: Document, imported: Imported, prefix: str = "") -> None:
        self._document = document
        self._imported = imported
        self._api = snake(prefix) or slug(document.title)
        self._names = Unique()
        self._made: dict[tuple[str, ...], str | None] = {}
        self._why: dict[tuple[str, ...], str] = {}
        self._needed: dict[str, str] = {}
        """Variables of the auth config being made."""

    def of(self, operation: Json) -> tuple[str | None, str | None]:
        """The name of the auth config that an operation needs; or why there is none though it
        should have one."""
        asked = operation.get("security", self._document.tree.get("security"))
        ways = [as_object(way) for way in as_list(asked)[:20]] if is_array(asked) else []
        reasons: list[str] = []
        for way in ways:
            if not way:
                return None, None
            schemes = tuple(sorted(way))
            if schemes not in self._made:
                self._made[schemes] = self._make(way)
            if name := self._made[schemes]:
                return name, None
            reasons.append(self._why[schemes])
        return None, f"comes without auth: {'; '.join(dict.fromkeys(reasons))}" if reasons else None

    def _make(self, way: Json) -> str | None:
        schemes = tuple(sorted(way))
        self._needed = {}
        try:
            found = [(name, self._scheme(name), way[name]) for name in schemes]
            title = snake("_".join((self._api, *schemes)))[:48] or "auth"
            kind, section = self._one(*found[0], title) if len(found) == 1 else self._several(found)
        except _Impossible as reason:
            self._why[schemes] = str(reason)
            return None
        name = self._names.take(title)
        self._imported.auths.append({"name": name, "type": kind, kind: section})
        self._imported.variables |= self._needed
        return name

    def _scheme(self, name: str) -> Json:
        listed = as_object(as_object(self._document.tree.get("components")).get("securitySchemes"))
        try:
            found = self._document.resolved(listed.get(name))
        except BadReference as reason:
            raise _Impossible(str(reason)) from None
        if not found:
            raise _Impossible(f"the security scheme {one_line(name, 40)!r} is not in the document")
        return found

    def _one(self, name: str, scheme: Json, scopes: Any, title: str) -> tuple[str, Json]:
        said = f"the security scheme {one_line(name, 40)!r}"
        match scheme.get("type"), str(scheme.get("scheme")).lower(), scheme.get("in"):
            case "apiKey", _, "header" | "query" as location:
                field = str(scheme.get("name"))
                if location == "header" and any(header_name_mistakes(field)):
                    raise _Impossible(f"{said} wants a header that cannot be sent")
                return "api_key", {
                    "location": location,
                    "name": clip(field, 200),
                    "value": self._secret(f"{location} {one_line(field, 60)}", scheme, title),
                }
            case "apiKey", _, "cookie":
                raise _Impossible(f"{said} is a cookie, which mcpx does not send")
            case "http", "basic", _:
                username = self._secret("user name", {}, title, "username")
                return "basic_auth", {
                    "username": username,
                    "password": self._secret("password", {}, title, "password"),
                }
            case "http", "bearer", _:
                return "bearer_token", {
                    "token": self._secret("bearer token", scheme, title, "token")
                }
            case "oauth2", _, _:
                return self._oauth2(scheme, scopes, title)
            case "openIdConnect", _, _:
                return "bearer_token", {
                    "token": self._secret("access token", scheme, title, "token")
                }
            case kind, way, _:
                told = f"http {one_line(way, 20)}" if kind == "http" else one_line(str(kind), 20)
                raise _Impossible(f"{said} is of a type that mcpx does not have ({told})")

    def _oauth2(self, scheme: Json, scopes: Any, title: str) -> tuple[str, Json]:
        flow = as_object(as_object(scheme.get("flows")).get("clientCredentials"))
        token_url = flow.get("tokenUrl")
        if not isinstance(token_url, str) or any(url_mistakes(token_url)) or "{" in token_url:
            # A person has to get a token then, by whatever way; how it is shown is the same.
            return "bearer_token", {
                "token": self._secret("OAuth 2 access token", scheme, title, "token")
            }
        wanted = [
            scope
            for scope in as_list(scopes)
            if isinstance(scope, str) and re.fullmatch(r"[\x21-\x7e]+", scope)
        ]
        section: Json = {
            "client_id": self._secret("OAuth 2 client id", {}, title, "client_id"),
            "client_secret": self._secret("OAuth 2 client secret", {}, title, "client_secret"),
            "token_url": token_url,
        }
        return "oauth2", {**section, **({"scope": clip(" ".join(wanted), 1_000)} if wanted else {})}

    def _several(self, found: list[tuple[str, Json, Any]]) -> tuple[str, Json]:
        """Several at once: as headers, where all of them are."""
        headers: Json = {}
        for name, scheme, scopes in found:
            own = snake(f"{self._api}_{name}")[:48] or "auth"
            if scheme.get("type") not in ("apiKey", "http", "oauth2") or scheme.get("in") not in (
                "header",
                None,
            ):
                raise _Impossible("several proofs at once, and not all of them in headers")
            kind, section = self._one(name, scheme, scopes, own)
            match kind:
                case "api_key":
                    headers[section["name"]] = section["value"]
                case "bearer_token":
                    headers["Authorization"] = Reference(f"Bearer {section['token']}")
                case _:
                    raise _Impossible("several proofs at once, and not all of them simple headers")
        return "custom_header", {"headers": headers}

    def _secret(self, what: str, scheme: Json, title: str, word: str = "") -> str:
        name = constant(title, word)
        told = scheme.get("description")
        self._needed[name] = one_line(
            f"{what}: {told}" if isinstance(told, str) and told.strip() else what, 120
        )
        return variable(name)


class _Impossible(Exception):
    """Why mcpx cannot show what is asked for."""
