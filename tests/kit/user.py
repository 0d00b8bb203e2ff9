"""`User`: a home folder, a working folder, and commands of mcpx that are run in it."""

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kit.command import Completed, run_command, run_process


class User:
    """A user without a configuration, until `write_config` is called. The real home folder is not
    read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        self.home = folder / "home"
        self.home.mkdir(mode=0o700)
        self.state = folder / "state"
        self.user_config = self.home / ".config" / "mcpx" / "config.yaml"
        """The configuration file that mcpx creates in the home folder."""
        self.environ: dict[str, str] = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home / ".config"),
            "XDG_STATE_HOME": str(folder / "xdg-state"),
            "MCPX_STATE_DIR": str(self.state),
        }

    def write_config(self, text: str, name: str = "mcpx.yaml") -> Path:
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o600)
        return path

    def write_file(self, path: Path | str, text: str) -> Path:
        """Write a file, by default below the home folder, and create its folders."""
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def run(self, *words: str, stdin: str = "", **environ: str) -> "Completed[str]":
        return run_command(words, self.folder, {**self.environ, **environ}, stdin)

    def run_process(self, *words: str, stdin: str = "", **environ: str) -> "Completed[str]":
        return run_process(words, self.folder, {**self.environ, **environ}, stdin)

    def run_json(self, *words: str, **environ: str) -> Any:
        """Return what the command prints with `--json`."""
        done = self.run(*words, "--json", **environ)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def run_in_terminal(
        self,
        *words: str,
        answers: Mapping[str, str],
        before_answer: Callable[[], object] = lambda: None,
    ) -> tuple[int, str]:
        """Return the exit code and the screen. `answers` maps each question to its answer, in
        order."""
        from kit.terminal import mcpx_on  # Needs `pty`, which Windows has not.

        with mcpx_on(self.folder, self.environ, *words) as terminal:
            for question, answer in answers.items():
                terminal.wait_for(re.escape(question))
                before_answer()
                terminal.type(f"{answer}\n")
            return terminal.end(), terminal.text
