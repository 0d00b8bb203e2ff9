"""SRC-8: the report of an old Python server about the `server/discover` probe is not logged as a
problem."""

import sys

import pytest

from kit.gateway import Gateway
from kit.servers import stdio_server
from kit.until import wait_until
from mcpx.transports.stdio import DiscoveryReportFilter

REPORT = b"""WARNING:root:Failed to validate request: 31 validation errors for ClientRequest
PingRequest.method
  Input should be 'ping' [type=literal_error, input_value='server/discover', input_type=str]
    For further information visit https://errors.pydantic.dev/2.14/v/literal_error
InitializeRequest.params.protocolVersion
  Field required [type=missing, input_value={'_meta': {'io.modelconte...lientCapabilities': {}}}, input_type=dict]
    For further information visit https://errors.pydantic.dev/2.14/v/missing
"""
"""The beginning of what version 1.30 of the SDK prints, with the same three kinds of lines as the
rest."""
OTHER = REPORT.replace(b"server/discover", b"tools/call")


@pytest.mark.parametrize("size", [1, 7, 400, 10_000])
@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (REPORT, b""),
        (b"starts\n" + REPORT + b"INFO: ready\nmore\n", b"starts\nINFO: ready\nmore\n"),
        (REPORT + b"INFO: ready\n" + REPORT + b"no end", b"INFO: ready\nno end"),
        (
            REPORT + b"Traceback (most recent call last):\n  File\n",
            b"Traceback (most recent call last):\n  File\n",
        ),
        (OTHER, OTHER),
        (b"server/discover is unknown\n  here\n", b"server/discover is unknown\n  here\n"),
    ],
)
def test_only_the_report_about_the_probe_is_removed(
    output: bytes, expected: bytes, size: int
) -> None:
    """SRC-8: however the output is cut, as long as the first lines of a report come together."""
    report_filter = DiscoveryReportFilter("srv")
    start = output.find(REPORT) + 300 if REPORT in output else 0
    pieces = [output[:start], *(output[at : at + size] for at in range(start, len(output), size))]
    if output.count(REPORT) > 1 and size < 300:
        pieces = [output]
    passed = b"".join(map(report_filter.passed, pieces)) + report_filter.end()
    assert passed == expected


def test_a_report_without_end_is_passed_on() -> None:
    """SRC-8: no more than 64 KB count as one report."""
    report_filter = DiscoveryReportFilter("srv")
    passed = report_filter.passed(REPORT)
    for _ in range(100):
        passed += report_filter.passed(b"  an indented line\n" * 100)
    assert 100_000 < len(passed) < 190_000
    assert report_filter.end() == b""


SERVER = f"""
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    reply = {{"jsonrpc": "2.0", "id": message["id"]}}
    if message["method"] == "initialize":
        version = message["params"]["protocolVersion"]
        about = {{"name": "old", "version": "1"}}
        reply["result"] = {{"protocolVersion": version, "capabilities": {{"tools": {{}}}}, "serverInfo": about}}
    elif message["method"] == "tools/list":
        reply["result"] = {{"tools": []}}
    else:
        sys.stderr.buffer.write({REPORT!r})
        print("INFO: the server is ready", file=sys.stderr, flush=True)
        reply["error"] = {{"code": -32602, "message": "Invalid request parameters", "data": ""}}
    print(json.dumps(reply), flush=True)
"""


def test_the_log_of_a_gateway_does_not_have_the_report() -> None:
    """SRC-8: other lines of the server are logged, and the status has no error."""
    with Gateway({"mcp_servers": [stdio_server("old", [sys.executable, "-c", SERVER])]}) as gateway:
        gateway.wait_for_log(r"\[old\] INFO: the server is ready")
        status = wait_until(
            lambda: [s for s in gateway.control("status")["servers"] if s["status"] == "connected"]
        )
        assert status[0]["last_error"] is None
        assert "validation error" not in gateway.stderr() and "PingRequest" not in gateway.stderr()
