"""LIF-7: each event loop of a process has separate children, and all loops share one keeper
process."""

from kit.client import Session, wait_until_settled
from kit.gateway import Gateway
from kit.messages import text_of
from kit.servers import raw_server
from mcpx.processes import process


def test_the_end_of_one_event_loop_leaves_the_children_of_another() -> None:
    """LIF-7: each gateway ends its own servers. The keeper ends with the last child."""
    with Gateway({"mcp_servers": [raw_server("kept")]}) as kept:
        with Gateway({"mcp_servers": [raw_server("ended")]}) as ended:
            wait_until_settled(ended.port)
            wait_until_settled(kept.port)
            keeper = process._KEEPER.pid
        assert process._KEEPER.pid == keeper is not None
        assert text_of(Session(kept.port).call("kept_echo", text="here")) == "here"
    assert process._KEEPER.pid is None
