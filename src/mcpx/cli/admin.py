"""`mcpx admin`: a login URL of the gateway that runs on this config, over its control socket; good
once."""

import contextlib
import sys
from pathlib import Path

from mcpx.cli import failing
from mcpx.cli.codes import FAILED, NOT_RUNNING
from mcpx.cli.running import result_of
from mcpx.cli.terminal import print_json


def admin(
    config_path: Path, state: Path, env: str | None, browser: bool, as_json: bool = False
) -> int:
    from mcpx.front.control import ask, socket_path

    opens_browser = browser and sys.stdout.isatty()
    answer = result_of(ask(socket_path(state, config_path, env), "admin", file=opens_browser))
    if answer is None:
        told = f"no gateway runs on {config_path}; start one with: mcpx {config_path} --admin"
        return failing.tell("not_running", told, NOT_RUNNING, as_json)
    if not answer.get("ok"):
        return failing.tell("failed", str(answer.get("error")), FAILED, as_json)
    url = str(answer["url"])
    if as_json:
        print_json({"url": url})
    else:
        sys.stdout.write(f"{url}\n")
    sys.stdout.flush()
    if opens_browser and (file := answer.get("file")):
        import webbrowser

        # The login URL must not be an argument of the browser program: other users can read the
        # process list.
        with contextlib.suppress(Exception):  # The terminal shows the URL.
            webbrowser.open(Path(str(file)).as_uri())
    return 0
