"""Converts security requirements of an OpenAPI document to auth configs.

Each requirement that an operation has becomes one auth config, whose secrets are references to
variables. Of alternative requirements, the first one that mcpx supports is used.
"""

import re
from typing import Any

from mcpx.imports.imported import Imported, reference
from mcpx.imports.openapi_document import BadReference, Document
from mcpx.imports.source import UniqueNames, clip, one_line, slug, snake, variable_name
from mcpx.model.call import Json, as_list, as_object
from mcpx.wire.fields import header_name_mistakes, url_mistakes

_TOKENS = {
    "http": "bearer token",
    "oauth2": "OAuth 2 access token",
    "openIdConnect": "access token",
}


class _Unsupported(Exception):
    pass


class Security:
    def __init__(self, document: Document, imported: Imported, prefix: str = "") -> None:
        self._document = document
        self._imported = imported
        self._api = snake(prefix) or slug(document.title)
        self._names = UniqueNames()
        self._made: dict[tuple[str, ...], str | _Unsupported] = {}
        """The name of the auth config of each requirement."""

    def auth_of(self, operation: Json) -> tuple[str | None, str]:
        """The name of the auth config for an operation, or None with a reason."""
        required = operation.get("security", self._document.tree.get("security"))
        reasons: list[str] = []
        for alternative in map(as_object, as_list(required)[:20]):
            if not alternative:
                return None, ""
            schemes = tuple(sorted(alternative))
            if schemes not in self._made:
                try:
                    self._made[schemes] = self._auth_config(alternative)
                except _Unsupported as reason:
                    self._made[schemes] = reason
            name = self._made[schemes]
            if isinstance(name, str):
                return name, ""
            reasons.append(str(name))
        if not reasons:
            return None, ""
        return None, f"comes without auth: {'; '.join(dict.fromkeys(reasons))}"

    def _auth_config(self, requirement: Json) -> str:
        names = sorted(requirement)
        title = snake("_".join((self._api, *names)))[:48] or "auth"
        variables: dict[str, str] = {}
        parts: list[tuple[str, Json]] = []
        for name in names:
            part_title = title
            if len(names) > 1:
                part_title = snake(f"{self._api}_{name}")[:48] or "auth"
            scheme = _Scheme(name, self._scheme(name), part_title, variables)
            parts.append(scheme.auth(requirement[name]))
        kind, section = parts[0]
        if len(parts) > 1:
            kind, section = "custom_header", {"headers": _headers(parts)}
        made = self._names.take(title)
        self._imported.auths.append({"name": made, "type": kind, kind: section})
        self._imported.variables |= variables
        return made

    def _scheme(self, name: str) -> Json:
        components = as_object(self._document.tree.get("components"))
        try:
            found = self._document.resolved(as_object(components.get("securitySchemes")).get(name))
        except BadReference as reason:
            raise _Unsupported(str(reason)) from None
        if not found:
            shown = one_line(name, 40)
            raise _Unsupported(f"the security scheme {shown!r} is not in the document")
        return found


class _Scheme:
    def __init__(self, name: str, scheme: Json, title: str, variables: dict[str, str]) -> None:
        self._shown = f"the security scheme {one_line(name, 40)!r}"
        self._scheme = scheme
        self._title = title
        self._variables = variables

    def auth(self, scopes: Any) -> tuple[str, Json]:
        """The type and the section of an auth config."""
        scheme = self._scheme
        kind, way = str(scheme.get("type")), str(scheme.get("scheme")).lower()
        if kind == "apiKey":
            return "api_key", self._api_key(str(scheme.get("in")), str(scheme.get("name")))
        if (kind, way) == ("http", "basic"):
            section = {"username": self._variable("user name", "username")}
            return "basic_auth", {**section, "password": self._variable("password", "password")}
        if kind not in _TOKENS or (kind == "http" and way != "bearer"):
            shown = one_line(f"{kind} {way}" if kind == "http" else kind, 40)
            raise _Unsupported(f"{self._shown} has a type that mcpx does not support ({shown})")
        flow = as_object(as_object(scheme.get("flows")).get("clientCredentials"))
        token_url = flow.get("tokenUrl")
        if kind == "oauth2" and isinstance(token_url, str) and _is_url(token_url):
            return "oauth2", self._client_credentials(token_url, scopes)
        # For other flows, the user gets the token in a browser.
        return "bearer_token", {"token": self._variable(_TOKENS[kind], "token")}

    def _api_key(self, location: str, name: str) -> Json:
        if location not in ("header", "query"):
            raise _Unsupported(f"{self._shown} is a cookie, which mcpx does not send")
        if location == "header" and any(header_name_mistakes(name)):
            raise _Unsupported(f"{self._shown} needs a header that cannot be sent")
        value = self._variable(f"{location} {one_line(name, 60)}", "")
        return {"location": location, "name": clip(name, 200), "value": value}

    def _client_credentials(self, token_url: str, scopes: Any) -> Json:
        section: Json = {
            "client_id": self._variable("OAuth 2 client id", "client_id"),
            "client_secret": self._variable("OAuth 2 client secret", "client_secret"),
            "token_url": token_url,
        }
        wanted = [
            scope for scope in map(str, as_list(scopes)) if re.fullmatch(r"[\x21-\x7e]+", scope)
        ]
        if wanted:
            section["scope"] = clip(" ".join(wanted), 1_000)
        return section

    def _variable(self, what: str, word: str) -> str:
        name = variable_name(self._title, word)
        text = self._scheme.get("description")
        if isinstance(text, str) and text.strip() and word in ("", "token"):
            what = f"{what}: {text}"
        self._variables[name] = one_line(what, 120)
        return reference(name)


def _headers(parts: list[tuple[str, Json]]) -> Json:
    """Several auth configs as headers of one request."""
    headers: Json = {}
    for kind, section in parts:
        if kind == "bearer_token":
            headers["Authorization"] = f"Bearer {section['token']}"
        elif kind == "api_key" and section["location"] == "header":
            headers[section["name"]] = section["value"]
        else:
            raise _Unsupported("several credentials, of which not all are simple headers")
    return headers


def _is_url(url: str) -> bool:
    return "{" not in url and not any(url_mistakes(url))
