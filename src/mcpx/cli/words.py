"""Small words the commands share."""

from mcpx.model.call import Json


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def is_downloading(server: Json) -> bool:
    """Whether the program of a server, as a gateway describes it, is still downloading the server
    (LIF-10)."""
    return server.get("phase") == "downloading"


def state_of(server: Json) -> str:
    """The state of a server as tables show it: `connected`, `downloading (41 s)`."""
    if is_downloading(server):
        return f"downloading ({server.get('phase_s')} s)"
    return str(server.get("status"))
