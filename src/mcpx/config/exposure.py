"""SEC-1: nobody opens a machine's tools to the network by accident. `mcpx` and `mcpx check` judge alike by this."""

from ipaddress import ip_address

from mcpx.config.schema import Config
from mcpx.model.errors import ConfigError


def refuse_exposure(host: str, config: Config) -> None:
    """Raises when other machines could reach the tools without a token. Over stdio nothing is bound: do not ask."""
    auth = config.server.auth
    if _is_loopback(host) or (auth is not None and auth.tokens):
        return
    raise ConfigError(
        [
            f"error: {host} can be reached from other machines, and no token protects the tools behind it\n"
            "  Bind 127.0.0.1, or set server.auth with at least one token in the config.\n"
            "  (With --transport stdio nothing is bound.)"
        ]
    )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
