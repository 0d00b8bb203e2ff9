"""Whether git would commit a file with secrets."""

import os
import subprocess
from pathlib import Path

TIMEOUT_SECONDS = 5.0


def warning(file: Path) -> str:
    """Return a warning if the file is in a git repository that does not ignore it. Otherwise the
    text is empty."""
    folder = Path(os.path.realpath(file.parent))
    root = next((each for each in (folder, *folder.parents) if (each / ".git").exists()), None)
    if root is None or _is_ignored(folder / file.name, root):
        return ""
    line = f"/{(folder / file.name).relative_to(root).as_posix()}"
    return (
        f"{file} holds secrets, and git does not ignore it; add the line {line} to "
        f"{root / '.gitignore'}"
    )


def _is_ignored(file: Path, root: Path) -> bool:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    # fsmonitor could start a program of the repository.
    command = [
        "git",
        "-C",
        str(root),
        "-c",
        "core.fsmonitor=false",
        "check-ignore",
        "-q",
        str(file),
    ]
    try:
        done = subprocess.run(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return _has_line(file, root)
    return done.returncode == 0 or (done.returncode != 1 and _has_line(file, root))


def _has_line(file: Path, root: Path) -> bool:
    """Without git: whether a .gitignore from the root to the file has a line for it, as it is
    usually written."""
    folder = file.parent
    while True:
        path = file.relative_to(folder).as_posix()
        usual = {file.name, path, f"/{path}", f"**/{file.name}", f"{file.name}*"}
        try:
            lines = (
                (folder / ".gitignore").read_text(encoding="utf-8", errors="replace").splitlines()
            )
        except OSError:
            lines = []
        if usual & {line.strip() for line in lines}:
            return True
        if folder == root:
            return False
        folder = folder.parent
