"""Makes each defect of tests/defects.toml in a copy of the repository and checks that the named
test finds it.

uv run python scripts/defects.py                # All defects.
uv run python scripts/defects.py 7 SEC-7        # By number, or by promise.
uv run python scripts/defects.py --jobs 2       # Two at a time, each in a separate copy.
uv run python scripts/defects.py --no-baseline  # Skip the run that shows that the tests pass
without a defect.

Exit code 0: every selected defect is found. Exit code 1: a defect is not found, an entry cannot be
applied, or a named test fails without the defect.

The tests import the patched code in every process. They run with the Python of a temporary virtual
environment. The environment lists the copy's `src` before the installed packages, so child
processes that get no PYTHONPATH import the patched code, too. A defect counts as found only if a
test fails. An error during import, collection or setup does not count. The script needs Linux or
macOS.
"""

import argparse
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from xml.etree import ElementTree

REPOSITORY = Path(__file__).resolve().parents[1]
TABLE = REPOSITORY / "tests" / "defects.toml"
TIMEOUT_SECONDS = 300.0
FOUND, NOT_FOUND, CANNOT_APPLY, BROKEN = "found", "NOT FOUND", "cannot apply", "BROKEN"


@dataclass(frozen=True, slots=True)
class Defect:
    number: int
    """Position in the table, from 1."""
    promise: str
    package: str
    defect: str
    file: str
    old: str
    new: str
    test: str


def defects() -> list[Defect]:
    entries = tomllib.loads(TABLE.read_text(encoding="utf-8"))["defect"]
    return [Defect(number, **entry) for number, entry in enumerate(entries, 1)]


def selected(words: Sequence[str]) -> list[Defect]:
    table = defects()
    unknown = [
        word
        for word in words
        if not any(word in (str(each.number), each.promise) for each in table)
    ]
    if unknown:
        raise SystemExit(
            f"defects: not in {TABLE.name}: {', '.join(unknown)}. Use a promise id or 1 to "
            f"{len(table)}."
        )
    return [
        each for each in table if not words or str(each.number) in words or each.promise in words
    ]


class Copy:
    """The working tree, including uncommitted changes, with a Python environment that imports
    it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "mcpx"
        self._environment = folder / "venv"
        self._report = folder / "report.xml"
        self._changes = 0
        self._copy_files()
        self._make_environment()

    def _copy_files(self) -> None:
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True).stdout
        for name in filter(None, os.fsdecode(listed).split("\0")):
            source, target = REPOSITORY / name, self.root / name
            if source.is_file():  # A deleted file is still in the index.
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target, follow_symlinks=False)

    def _make_environment(self) -> None:
        """An environment whose first entry is the copy; the packages are those of the running
        Python."""
        venv.create(self._environment, symlinks=True)
        installed = Path(sys.prefix, "lib", f"python3.{sys.version_info.minor}", "site-packages")
        packages = self._environment / installed.relative_to(sys.prefix)
        # Plain paths: Python does not process the `.pth` files in them, which name the original
        # `src`.
        paths = [self.root / "src", self.root / "bench" / "launch", installed]
        (packages / "defects.pth").write_text(
            "".join(f"{path}\n" for path in paths), encoding="utf-8"
        )
        for script in ("mcpx", "mcpx-gateway"):
            file = self._environment / "bin" / script
            file.write_text(
                f"#!{self.python}\nfrom mcpx.cli.main import main\nraise SystemExit(main())\n"
            )
            file.chmod(0o755)

    @property
    def python(self) -> Path:
        return self._environment / "bin" / "python"

    @property
    def _variables(self) -> dict[str, str]:
        left_out = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV")
        kept = {name: value for name, value in os.environ.items() if name not in left_out}
        return {**kept, "PATH": f"{self.python.parent}{os.pathsep}{kept.get('PATH', os.defpath)}"}

    def require_own_code(self) -> None:
        """Raises SystemExit if a process of this environment imports mcpx from another place."""
        code = "import mcpx; print(mcpx.__file__)"
        for variables in (self._variables, {}):
            command = [str(self.python), "-c", code]
            found = subprocess.run(
                command, cwd="/", env=variables, check=True, capture_output=True, text=True
            ).stdout
            if not Path(found.strip()).is_relative_to(self.root):
                raise SystemExit(
                    f"defects: the tests would import {found.strip()}, not the code in {self.root}"
                )

    def write(self, file: str, text: str) -> None:
        target = self.root / file
        target.write_text(text, encoding="utf-8")
        # Python recognizes an outdated .pyc file by size and by time in seconds.
        self._changes += 1
        at = time.time() + 2 * self._changes
        os.utime(target, (at, at))

    def imports(self, file: str) -> bool:
        module = ".".join(Path(file).relative_to("src").with_suffix("").parts).removesuffix(
            ".__init__"
        )
        return self._run(["-c", f"import {module}"])[0] == 0

    def test(self, tests: Iterable[str], *more: str) -> tuple[set[str], set[str], str]:
        """Runs tests. Returns the node ids that failed, those that had an error or did not run, and
        the output."""
        wanted = list(dict.fromkeys(tests))
        self._report.unlink(missing_ok=True)
        options = [
            "-q",
            "--no-header",
            "--tb=short",
            "-p",
            "no:cacheprovider",
            f"--junitxml={self._report}",
        ]
        _, output = self._run(["-m", "pytest", *options, *more, *wanted])
        failed, passed = set[str](), set[str]()
        try:
            cases = list(ElementTree.parse(self._report).iter("testcase"))
        except (OSError, ElementTree.ParseError):
            cases = []
        for case in cases:
            # pytest writes `tests.wire.test_peer` and `test_it[a]`; a class adds its name to the
            # first.
            node = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
            if case.find("failure") is not None:
                failed.add(node)
            elif case.find("error") is None and case.find("skipped") is None:
                passed.add(node)
        failed = {test for test in wanted if any(_is_of(node, test) for node in failed)}
        passed = {test for test in wanted if any(_is_of(node, test) for node in passed)}
        return failed, set(wanted) - failed - passed, output

    def _run(self, arguments: Sequence[str]) -> tuple[int, str]:
        process = subprocess.Popen(
            [str(self.python), *arguments],
            cwd=self.root,
            env=self._variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            self._end_leftovers()  # They can hold the pipe open.
            output, _ = process.communicate()
        finally:
            self._end_leftovers()
        return process.returncode, output

    def _end_leftovers(self) -> None:
        """Kills what a defect left running. PATH in the environment of such a process names this
        copy."""
        mark = os.fsencode(self._environment)
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (folder / "environ").read_bytes():
                    os.kill(int(folder.name), signal.SIGKILL)
            except OSError:
                continue


def _is_of(node: str, test: str) -> bool:
    """Whether a result belongs to a test of the table, which may name all parameters of one."""
    return node == test or node.startswith(f"{test}[")


def judge(copy: Copy, defect: Defect) -> tuple[str, str]:
    """The verdict for one defect, and the output if the verdict is not `FOUND`."""
    text = (copy.root / defect.file).read_text(encoding="utf-8")
    if (count := text.count(defect.old)) != 1:
        return CANNOT_APPLY, f"`old` occurs {count} times in {defect.file}"
    copy.write(defect.file, text.replace(defect.old, defect.new))
    try:
        if not copy.imports(defect.file):
            return BROKEN, "the code with the defect cannot be imported"
        failed, not_run, output = copy.test([defect.test], "-x")
    finally:
        copy.write(defect.file, text)
    if failed:
        return FOUND, ""
    return (BROKEN if not_run else NOT_FOUND), output


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Check that the tests find the defects of tests/defects.toml."
    )
    parser.add_argument(
        "which", nargs="*", metavar="ID|N", help="promise ids or numbers; without one, all defects"
    )
    parser.add_argument("--jobs", type=int, default=1, help="defects that are tried at a time")
    parser.add_argument(
        "--no-baseline", action="store_true", help="do not run the tests without a defect first"
    )
    parser.add_argument(
        "--verbose",
        action="store_true",
        help="print the output of tests that did not find a defect",
    )
    options = parser.parse_args()
    table = selected(options.which)
    with tempfile.TemporaryDirectory(prefix="mcpx-defects-") as folder:
        copies = [
            Copy(Path(folder, str(number)))
            for number in range(max(1, min(options.jobs, len(table))))
        ]
        for copy in copies:
            copy.require_own_code()
        return 0 if _run_all(table, copies, options) else 1


def _run_all(table: Sequence[Defect], copies: Sequence[Copy], options: argparse.Namespace) -> bool:
    good = True
    if not options.no_baseline:
        failed, not_run, output = copies[0].test(defect.test for defect in table)
        good = not failed and not not_run
        for test in sorted(failed | not_run):
            _say(f"fails without a defect: {test}")
        if not good and options.verbose:
            _say(output)
    free: SimpleQueue[Copy] = SimpleQueue()
    for copy in copies:
        free.put(copy)

    def work(defect: Defect) -> str:
        copy, began = free.get(), time.monotonic()
        try:
            verdict, output = judge(copy, defect)
        finally:
            free.put(copy)
        about = f"{defect.number:3} {defect.promise:7} {defect.package:11} {verdict:12}"
        lines = [f"{about} {time.monotonic() - began:5.1f} s  {defect.test}"]
        if verdict != FOUND:
            lines += [f"    {defect.defect}", *([output] if options.verbose else [])]
        _say("\n".join(lines))
        return verdict

    with ThreadPoolExecutor(len(copies)) as pool:
        verdicts = list(pool.map(work, table))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = verdicts.count(FOUND)
    _say(
        f"{found} of {len(verdicts)} defects found; {used.ru_utime + used.ru_stime:.0f} s of CPU "
        "time"
    )
    return good and found == len(verdicts)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
