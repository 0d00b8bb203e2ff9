"""Signing in to the admin API."""

from pydantic import Field

from mcpx.admin.shapes.common import Given, Told


class Login(Given):
    token: str = Field(min_length=1, max_length=1024)


class SessionTold(Told):
    signed_in: bool
    by: str | None = None
    version: str | None = None


class LoginResult(SessionTold):
    secret: str
    """Value of the header `X-Mcpx-Session`; each request of the session needs it."""
