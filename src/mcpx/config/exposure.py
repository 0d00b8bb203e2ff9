"""SEC-1: nobody opens a machine's tools to the network by accident. `mcpx` and `mcpx check` judge
alike by this."""

from collections.abc import Callable

from mcpx.config.fields import is_loopback
from mcpx.config.schema import Config
from mcpx.model.errors import ConfigError


def refuse_exposure(host: str, config: Config, kept: Callable[[], bool] | None = None) -> None:
    """Raises when other machines could reach the tools without a token, or nobody could. Over stdio
    nothing is bound: do not ask. `kept`: whether the store has tokens; None: while it runs, when a
    last token may go."""
    auth = config.server.auth
    if auth is not None and auth.type == "jwt":
        _require_audience(host, config)
        return
    if is_loopback(host) or (auth is not None and (kept is None or auth.tokens or kept())):
        return
    if auth is None:
        what, then = (
            "no token protects the tools behind it",
            "set server.auth to {type: bearer} in the config and run",
        )
    else:
        what, then = "nobody could come in: there is no token yet", "run"
    raise ConfigError(
        [
            f"error: {host} can be reached from other machines, and {what}\n"
            f"  Bind 127.0.0.1, or {then} `mcpx token new NAME`, or name at least one token in "
            "server.auth.tokens.\n"
            "  (With --transport stdio nothing is bound.)"
        ]
    )


def refuse_admin_exposure(host: str, token: str | None) -> None:
    """Raises when other machines could reach the admin API, and only a token that nobody chose
    would be asked for."""
    if token is None and not is_loopback(host):
        raise ConfigError(
            [
                f"error: the admin UI would be reached from other machines at {host}, and no "
                "token is set for it\n"
                "  Set MCPX_ADMIN_TOKEN or server.admin_token, or leave server.admin.host out: it "
                "is 127.0.0.1 then."
            ]
        )


def _require_audience(host: str, config: Config) -> None:
    """A token for somebody else must not be good here; what a client calls us by is only its
    word."""
    server = config.server
    named = any(not name.startswith("*") for name in server.allowed_hosts)
    if (
        server.auth is None
        or server.auth.audience is not None
        or named
        or host not in ("0.0.0.0", "::", "")
    ):
        return
    raise ConfigError(
        [
            f"error: {host or 'every address'} is bound, so mcpx does not know by which address "
            "tokens name it\n"
            "  Set server.auth.audience, or name the hosts it is called by in server.allowed_hosts."
        ]
    )
