"""Runs one command of mcpx: `run_command` in the test's process, `run_process` as a separate
process.

`run_command` takes about 10 ms where a process takes 200. Use `run_process` for signals, closed
streams, exit by `os._exit`, and everything else that would end or change the process of the test.
"""

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from kit.process import START
from mcpx import app
from mcpx.cli.main import main

Completed = subprocess.CompletedProcess

MCPX = [sys.executable, "-m", "mcpx"]


def run_command(
    words: Sequence[str], folder: Path, environ: Mapping[str, str], stdin: str = ""
) -> "Completed[str]":
    """Call `main(words)` in `folder` with captured streams. `environ` is the whole environment."""
    stdout, stderr = _text_stream(), _text_stream()
    input_stream = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
    previous_folder = Path.cwd()
    with (
        mock.patch.dict(os.environ, environ, clear=True),
        mock.patch("sys.stdin", input_stream),
        mock.patch("mcpx.app.serve", _refuse_to_serve),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
    ):
        os.chdir(folder)
        try:
            code = main(list(words))
        except SystemExit as ended:
            code = _exit_code(ended, stderr)
        finally:
            os.chdir(previous_folder)
    return Completed(list(words), code, _written(stdout), _written(stderr))


def _refuse_to_serve(options: app.Run, environ: Mapping[str, str]) -> int:
    app.checked(options)
    raise AssertionError(
        "a command that serves changes its process: use run_process, GatewayProcess, or Gateway"
    )


def _text_stream() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="surrogateescape", newline="\n")


def _written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer: Any = stream.buffer
    return buffer.getvalue().decode(errors="surrogateescape")


def _exit_code(ended: SystemExit, stderr: io.TextIOWrapper) -> int:
    """The exit code and output of the interpreter for this exception."""
    if ended.code is None or isinstance(ended.code, int):
        return ended.code or 0
    stderr.write(f"{ended.code}\n")
    return 1


def run_process(
    words: Sequence[str],
    folder: Path,
    environ: Mapping[str, str],
    stdin: str = "",
    before: Sequence[str] = (),
) -> "Completed[str]":
    """Run `python -m mcpx` in `folder`. `before` are words before `-m`."""
    return subprocess.run(
        [sys.executable, *before, "-m", "mcpx", *words],
        cwd=folder,
        env=dict(environ),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=START,
        check=False,
    )


def private_environ(folder: Path, **more: str) -> dict[str, str]:
    """This environment without settings of mcpx, with the state in `folder`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MCPX_")}
    return {**kept, "MCPX_STANDALONE": "true", "MCPX_STATE_DIR": str(folder / "state"), **more}


def mcpx(folder: Path, *args: str, stdin: str = "", **environ: str) -> "Completed[str]":
    """One command in the test's process, with its state in `folder`."""
    return run_command(args, folder, private_environ(folder, **environ), stdin)


def mcpx_process(folder: Path, *args: str, stdin: str = "", **environ: str) -> "Completed[str]":
    """One command as a separate process, with its state in `folder`."""
    return run_process(args, folder, private_environ(folder, **environ), stdin)
