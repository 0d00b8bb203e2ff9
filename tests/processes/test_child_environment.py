"""LIF-7: a child gets a small environment, what it asks for, and nothing of ours."""

import os
import sys

import pytest

from kit.loop import run
from mcpx.model.call import Json
from mcpx.processes import process
from mcpx.processes.environment import child_environment, running_inside
from mcpx.transports import Stdio
from mcpx.transports.dial import Dial

BASIC = dict.fromkeys(
    (
        *(
            "PATH",
            "HOME",
            "USER",
            "LOGNAME",
            "SHELL",
            "LANG",
            "LC_ALL",
            "LC_CTYPE",
            "TERM",
            "TMPDIR",
            "TZ",
        ),
        *(
            "XDG_RUNTIME_DIR",
            "XDG_CONFIG_HOME",
            "HTTP_PROXY",
            "https_proxy",
            "No_Proxy",
            "ALL_PROXY",
        ),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "npm_config_registry"),
        *("UV_INDEX_URL", "PIP_INDEX_URL"),
    ),
    "x",
)
OTHER = {
    "AWS_SECRET_ACCESS_KEY": "s",
    "GITHUB_TOKEN": "t",
    "LD_PRELOAD": "l",
    "PYTHONPATH": "p",
    "LANGUISH": "x",
}
OURS = {"MCPX_TOKEN": "m", "MCPX_PROXY": "m", "mcpx_token": "m"}


def test_a_child_gets_what_a_program_needs_and_no_more() -> None:
    """LIF-7"""
    assert child_environment({**BASIC, **OTHER, **OURS}, {}, False) == BASIC


def test_its_own_env_comes_last_and_may_say_anything() -> None:
    """LIF-7"""
    declared = {"PATH": "/mine", "MCPX_TOKEN": "given", "NEW": "n"}
    assert child_environment({**BASIC, **OURS}, declared, False) == {**BASIC, **declared}


def test_inherit_env_gives_all_or_what_is_named_but_nothing_of_ours() -> None:
    """LIF-7"""
    own = {**BASIC, **OTHER, **OURS}
    assert child_environment(own, {}, True) == {**BASIC, **OTHER}
    names = ("GITHUB_TOKEN", "MCPX_TOKEN", "NOT_SET")
    assert child_environment(own, {}, names) == {**BASIC, "GITHUB_TOKEN": "t"}
    assert child_environment(own, {}, ()) == BASIC


@pytest.mark.parametrize("inherit", [False, ()])
def test_a_shell_function_in_a_variable_is_not_passed_on(inherit: bool | tuple[str, ...]) -> None:
    """LIF-7"""
    assert child_environment({"LC_ALL": "() { :; }; echo gotcha"}, {}, inherit) == {}


def test_a_child_is_marked_with_the_gateways_above_it() -> None:
    """LIF-7: the one thing of ours it gets, so that a gateway which starts itself finds out, by
    whatever detour."""
    first = child_environment(OURS, {}, False, "outer")
    assert first == {"MCPX_INSIDE": "outer"}
    second = child_environment({**BASIC, **first}, {"MCPX_INSIDE": "made up"}, True, "inner")
    assert second == {**BASIC, "MCPX_INSIDE": "outer,inner"}
    assert running_inside(second) == ("outer", "inner")
    assert child_environment(second, {}, False) == {**BASIC, "MCPX_INSIDE": "outer,inner"}
    assert running_inside({}) == ()
    assert child_environment({}, {}, False) == {}


def test_a_mark_that_is_none_is_passed_over_and_a_chain_does_not_grow_for_ever() -> None:
    assert running_inside({"MCPX_INSIDE": " a ,,b c,\n,d,é," + "x" * 500}) == ("a", "d")
    env: dict[str, str] = {}
    for number in range(100):
        env = child_environment(env, {}, False, f"g{number}")
    assert running_inside(env) == tuple(f"g{number}" for number in range(68, 100))


class Nobody:
    async def request(self, message: Json) -> Json:
        return {}

    def notification(self, method: str, params: Json) -> None:
        pass

    def closed(self, reason: str) -> None:
        pass


TELLS = """
import json, os, sys
for line in sys.stdin:
    result = {name: value for name, value in os.environ.items() if name.startswith("MCPX_")}
    print(json.dumps({"jsonrpc": "2.0", "id": json.loads(line)["id"], "result": result}), flush=True)
"""


def test_a_child_process_finds_the_mark_in_its_environment() -> None:
    """LIF-7"""

    async def main() -> None:
        environ = {**os.environ, "MCPX_TOKEN": "m", "MCPX_INSIDE": "outer"}
        dial = Dial("srv", Nobody(), 20.0, 1 << 20, environ, {}, itself="run1")
        talk = await Stdio(command=sys.executable, args=("-I", "-S", "-c", TELLS)).open(dial)
        assert await talk.request("env", {}, timeout=20.0) == {"MCPX_INSIDE": "outer,run1"}
        await talk.close()
        await process.end_all()

    run(main())
