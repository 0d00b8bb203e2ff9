"""SRC-4, SRC-5, SEC-3: scripts as tools, with real processes."""

import asyncio
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import uvloop

from kit.until import until
from mcpx.commands.script import Script
from mcpx.commands.scripts import arguments, confine, output, running
from mcpx.commands.scripts.arguments import Template
from mcpx.commands.work import Bench, CommandFailed, Progress, Work
from mcpx.processes import process

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

PATIENCE = 20.0
Json = dict[str, Any]
Run = Callable[[Coroutine[Any, Any, Any]], Any]

ECHO = "import json, sys; print(json.dumps(sys.argv[1:]))"
ENVIRON = "import json, os; print(json.dumps(dict(os.environ)))"


@pytest.fixture(params=["uvloop", "asyncio"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Runs a coroutine on both loops; in the end nothing is left."""
    with asyncio.Runner(
        loop_factory=uvloop.new_event_loop if request.param == "uvloop" else None
    ) as runner:
        try:
            yield runner.run
        finally:
            runner.run(process.end_all())
    assert not [
        pid
        for pid in os.listdir("/proc")
        if pid.isdigit() and process.RUN.encode() in environ_of(pid)
    ]


def environ_of(pid: str) -> bytes:
    try:
        return Path("/proc", pid, "environ").read_bytes()
    except OSError:
        return b""


class Shop:
    """A folder of scripts, and the commands made of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0

    def script(self, code: str, interpreter: str | None = sys.executable, **keys: Any) -> Script:
        self.count += 1
        file = self.folder / f"script{self.count}"
        file.write_text(code)
        return Script(
            interpreter=interpreter, **{"path": str(file), "cwd": str(self.folder), **keys}
        )

    def work(
        self, script: Script, environ: Mapping[str, str] | None = None, paths: tuple[str, ...] = ()
    ) -> Work:
        bench = Bench(
            "shop",
            {},
            os.environ if environ is None else environ,
            fetcher=lambda: pytest.fail("no HTTP here"),
            script_paths=paths or (str(self.folder),),
        )
        return script.prepare(bench)

    async def call(
        self, script: Script, progress: Progress | None = None, /, **values: Any
    ) -> Json:
        async with asyncio.timeout(PATIENCE):
            return await self.work(script).run(values, progress)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def refusal(run: Run, work: Coroutine[Any, Any, Any]) -> str:
    with pytest.raises(CommandFailed) as caught:
        run(work)
    return str(caught.value)


# ---- the command line


def line(args: list[str], values: Json, *, dashes: bool = False) -> list[str]:
    return arguments.command_line(
        [Template.parse(arg) for arg in args], arguments.with_all(values), dashes=dashes
    )


@pytest.mark.parametrize(
    ("args", "values", "made"),
    [
        (["a", "{x}", "b"], {"x": "; $(ls) | 'q' \"\n"}, ["a", "; $(ls) | 'q' \"\n", "b"]),
        (["{x}"], {"x": ""}, [""]),
        (["{x}", "b"], {}, ["b"]),
        (["{x}", "b"], {"x": None}, ["b"]),
        (["--x={x}", "b"], {}, ["b"]),
        (["--x={x}", "--y={y}"], {"y": "-rf"}, ["--y=-rf"]),
        (["{a}:{b}"], {"a": 1}, []),
        (["{x}"], {"x": [1, "two", True, {"a": None}, None]}, ["1", "two", "true", '{"a":null}']),
        (["{x}"], {"x": []}, []),
        (["--x={x}"], {"x": ["a", "b"]}, ['--x=["a","b"]']),
        (["{x}"], {"x": {"a": "{y}"}}, ['{"a":"{y}"}']),
        (["{x}", "{y}"], {"x": "{y}", "y": "{x}"}, ["{y}", "{x}"]),
        (["{x}"], {"x": -5}, ["-5"]),
        (["{x}px"], {"x": -5.5}, ["-5.5px"]),
        (["--", "{x}"], {"x": "--help"}, ["--", "--help"]),
        (
            ["{{x}}", "awk '{print $1}'", "{}", "{ x }"],
            {"x": 1},
            ["{x}", "awk '{print $1}'", "{}", "{ x }"],
        ),
        (['{"a": {"b": "{x}"}}'], {"x": 1}, ['{"a": {"b": "1"}}']),
        (["{*}"], {"x": 1, "y": "z"}, ['{"x":1,"y":"z"}']),
        (["--verbose", "--", "{x}"], {}, ["--verbose", "--"]),
    ],
)
def test_an_element_stays_an_element_and_drops_out_without_a_value(
    args: list[str], values: Json, made: list[str]
) -> None:
    """SRC-4, SEC-3."""
    assert line(args, values) == made


@pytest.mark.parametrize(
    ("args", "values"),
    [
        (["{x}"], {"x": "-rf"}),
        (["{x}"], {"x": "--"}),
        (["{x}"], {"x": ["a", "-b"]}),
        (["{x}.txt"], {"x": "-rf"}),
        (["{a}{b}"], {"a": "", "b": "-rf"}),
        (["--x", "{x}"], {"x": "--y"}),
        (["{x}", "--"], {"x": "-v"}),
    ],
)
def test_a_value_cannot_become_an_option(args: list[str], values: Json) -> None:
    """SEC-3: unless the config says that the script takes none."""
    with pytest.raises(CommandFailed, match="must not begin with '-'"):
        line(args, values)
    assert any(element.startswith("-") for element in line(args, values, dashes=True))


def test_an_option_is_not_left_without_its_value() -> None:
    """SRC-4: `--x` would take the next element for its own."""
    with pytest.raises(CommandFailed, match="'x'"):
        line(["--x", "{x}", "{y}"], {"y": "z"})


def test_what_no_program_can_be_given_is_refused_in_words() -> None:
    """SEC-3."""
    for text, words in (
        ("a\0b", "NUL"),
        ("x" * 131_072, "131,072 bytes"),
        ("\ud800", "half of a character"),
    ):
        with pytest.raises(CommandFailed, match=words):
            arguments.require_room([text], {})
        with pytest.raises(CommandFailed, match=words if "bytes" not in words else "too long"):
            arguments.require_room([], {"NAME": text})
    with pytest.raises(CommandFailed, match="too long"):
        arguments.require_room(["x" * 100_000] * 100, {})
    arguments.require_room(["x" * 131_071, "城市" * 1000], {"A": "b"})


def test_arguments_arrive_letter_by_letter(run: Run, shop: Shop) -> None:
    """SRC-4, SEC-3: also through a shell script."""
    hostile = [
        "; touch hacked",
        "$(touch hacked)",
        "`touch hacked`",
        "| x",
        "'\"",
        "a\nb",
        "*",
        "~",
        "城市 \U0001f600",
        "",
    ]
    script = shop.script(ECHO, args=("{all}",))
    assert run(shop.call(script, all=hostile))["structuredContent"] == {"result": hostile}
    if shutil.which("bash"):
        script = shop.script(
            'for one in "$@"; do printf "%s\\0" "$one"; done', "bash", args=("{all}",)
        )
        assert run(shop.call(script, all=hostile))["content"][0]["text"] == "".join(
            f"{one}\0" for one in hostile
        )
    assert not (shop.folder / "hacked").exists()


# ---- what surrounds it


def test_the_environment_is_the_small_one_and_what_is_declared(run: Run, shop: Shop) -> None:
    """SEC-3."""
    own = {
        "PATH": os.environ["PATH"],
        "HOME": "/home",
        "SECRET": "canary",
        "MCPX_TOKEN": "canary",
        "OPENAI": "canary",
    }
    script = shop.script(
        ENVIRON, env={"GREETING": "hello {name}", "ABSENT": "{absent}", "DATA": "{data}"}
    )

    async def call() -> Json:
        return await shop.work(script, own).run({"name": "$(x)", "data": [1]}, None)

    result = run(call())
    assert "canary" not in json.dumps(result)
    seen = result["structuredContent"]
    assert (seen["GREETING"], seen["DATA"], seen["HOME"]) == ("hello $(x)", "[1]", "/home")
    assert "ABSENT" not in seen


def test_an_argument_is_no_shell_function(run: Run, shop: Shop) -> None:
    """SEC-3: old shells run what looks like one in a variable."""
    script = shop.script(ENVIRON, env={"A": "{a}"})
    assert "'()'" in refusal(run, shop.call(script, a="() { :; }; touch hacked"))


def test_standard_input_is_a_text_all_arguments_or_empty(run: Run, shop: Shop) -> None:
    """SRC-4."""
    read = "import sys; sys.stdout.write(repr(sys.stdin.read()))"
    text = "x" * 300_000
    assert run(shop.call(shop.script(read, stdin="{text}"), text=text))["content"][0][
        "text"
    ] == repr(text)
    assert run(shop.call(shop.script(read, stdin="{*}"), a=1))["content"][0]["text"] == repr(
        '{"a":1}'
    )
    assert run(shop.call(shop.script(read, stdin="<{text}>")))["content"][0]["text"] == "'<>'"
    assert run(shop.call(shop.script(read)))["content"][0]["text"] == "''"


def test_a_script_that_does_not_read_its_input_is_no_failure(run: Run, shop: Shop) -> None:
    """SRC-4: more than a pipe holds."""
    assert run(shop.call(shop.script("print('ok')", stdin="{text}"), text="x" * 2**20)) == {
        "content": [{"type": "text", "text": "ok"}]
    }


def test_it_runs_where_the_config_says(run: Run, shop: Shop) -> None:
    """SRC-4."""
    script = shop.script("import os; print(os.getcwd())", cwd=str(shop.folder))
    assert run(shop.call(script))["content"][0]["text"] == os.path.realpath(shop.folder)
    script = shop.script("", cwd=str(shop.folder / "absent"))
    assert "working folder is not there" in refusal(run, shop.call(script))


# ---- what runs it


def test_an_empty_allowed_folder_allows_nothing(
    run: Run, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SEC-3: a variable that is empty does not mean the folder that mcpx was started in."""
    monkeypatch.chdir(shop.folder)

    async def call() -> Json:
        return await shop.work(shop.script(ECHO), paths=("",)).run({}, None)

    assert "outside of the folders" in refusal(run, call())


def test_a_missing_interpreter_is_named(run: Run, shop: Shop) -> None:
    """SRC-4."""
    message = refusal(run, shop.call(shop.script("", "no-such-interpreter")))
    assert message == "no-such-interpreter is not found on PATH; install it or give its full path"
    assert "without options" in refusal(run, shop.call(shop.script("", "no-such -u")))
    assert "is not there" in refusal(run, shop.call(shop.script("", "/no/such")))


@pytest.mark.parametrize("interpreter", ["python3 -u", f"{sys.executable} -u", "./tool -x"])
def test_an_interpreter_with_options_is_told_that_it_is_one_program(
    run: Run, shop: Shop, interpreter: str
) -> None:
    """SRC-4."""
    told = refusal(run, shop.call(shop.script(ECHO, interpreter)))
    assert "one program, without options" in told
    assert (f"in {shop.folder}" in told) == interpreter.startswith(".")


def test_this_python_stands_in_where_none_is_on_path(run: Run, shop: Shop) -> None:
    """SRC-4: clients start mcpx with a PATH of two folders."""
    script = shop.script("import sys; print(sys.executable)", "python3")

    async def call() -> Json:
        return await shop.work(script, {"PATH": str(shop.folder)}).run({}, None)

    assert run(call())["content"][0]["text"] == sys.executable


def test_a_script_without_interpreter_must_be_a_program(run: Run, shop: Shop) -> None:
    """SRC-4: each way in which it is not is told."""
    good = shop.script(f"#!{sys.executable}\nprint('ran')", None)
    assert "not executable: chmod +x" in refusal(run, shop.call(good))
    os.chmod(good.path, 0o755)
    assert run(shop.call(good))["content"][0]["text"] == "ran"
    ways = {
        "no first line": "has no '#!' line",
        "#!/no/such/program\n": "names is not there: name its 'interpreter'",
        "#!/bin/sh\r\necho hi\r\n": "names is not there: its lines end as on Windows",
    }
    for code, words in ways.items():
        bad = shop.script(code, None)
        os.chmod(bad.path, 0o755)
        assert words in refusal(run, shop.call(bad))


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_node_runs_under_the_limits(run: Run, shop: Shop) -> None:
    """SRC-4: it reserves more address space than any machine has, and starts a dozen threads."""
    script = shop.script(
        "console.log(JSON.stringify({sum: process.argv.slice(2)}))", "node", args=("{x}",)
    )
    assert run(shop.call(script, x="a b"))["structuredContent"] == {"sum": ["a b"]}


def test_limits_are_lowered_for_good(run: Run, shop: Shop) -> None:
    """SEC-3: soft and hard, for it and what it starts."""
    code = (
        "import json, resource as r, time\n"
        "names = ['CORE', 'FSIZE', 'DATA', 'NOFILE', 'CPU']\n"
        # Imposed from outside a moment after the start (`processes.limits`), which may be long on a
        # busy machine.
        "while max(r.getrlimit(getattr(r, 'RLIMIT_' + n))[1] % 2**64 for n in names) > 2**30: "
        "time.sleep(0.001)\n"
        "while r.getrlimit(r.RLIMIT_NOFILE)[1] > 4096: time.sleep(0.001)\n"
        "print(json.dumps({n: r.getrlimit(getattr(r, 'RLIMIT_' + n)) for n in names}))\n"
    )
    seen = run(shop.call(shop.script(code, max_file=1000, max_memory=2**30, timeout=7)))[
        "structuredContent"
    ]
    assert seen["CORE"] == [0, 0]
    assert seen["FSIZE"] == [1000, 1000]
    assert seen["DATA"] == [2**30, 2**30]
    assert seen["NOFILE"][1] <= 4096
    assert seen["CPU"][1] == 7 * (os.cpu_count() or 1) + 2


def test_a_file_over_the_limit_is_told(run: Run, shop: Shop) -> None:
    """SEC-3."""
    code = (
        "import resource, signal, time\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"
        # as above
        "while resource.getrlimit(resource.RLIMIT_FSIZE)[1] != 1000: time.sleep(0.001)\n"
        "open('large', 'wb').write(bytes(5000))\n"
    )
    assert "max_file" in refusal(run, shop.call(shop.script(code, max_file=1000)))


# ---- what it prints


@pytest.mark.parametrize(
    ("printed", "text", "structured"),
    [
        ('{"a": 1}\n', '{"a": 1}', {"a": 1}),
        ("[1, 2]", "[1, 2]", {"result": [1, 2]}),
        ("42\n", "42", {"result": 42}),
        ("null", "null", {"result": None}),
        (
            "12345678901234567890123\n",
            "12345678901234567890123",
            {"result": 12345678901234567890123},
        ),
        ("plain\nwords\n", "plain\nwords", None),
        ("NaN", "NaN", None),
        ('{"a": 1} {"b": 2}', '{"a": 1} {"b": 2}', None),
        ("", "", None),
    ],
)
def test_json_becomes_structured_content(printed: str, text: str, structured: Json | None) -> None:
    """SRC-4."""
    result = asyncio.run(output.result_of(printed.encode(), None, str))
    assert result["content"] == [{"type": "text", "text": text}]
    assert result.get("structuredContent") == structured
    assert "isError" not in result


def test_a_query_selects_of_the_output() -> None:
    """SRC-4: `result`."""

    def select(raw: bytes, query: str) -> Json:
        return asyncio.run(output.result_of(raw, query, str))

    assert select(b'{"a": [{"b": "x"}]}', "a[0].b") == {
        "content": [{"type": "text", "text": "x"}],
        "structuredContent": {"result": "x"},
    }
    assert select(b'{"a": {"b": 1}}', "a")["structuredContent"] == {"b": 1}
    assert select(b'{"a": 1}', "zzz")["structuredContent"] == {"result": None}
    large = json.dumps({"a": list(range(100_000))}).encode()
    assert select(large, "a[-1]")["structuredContent"] == {"result": 99_999}
    with pytest.raises(CommandFailed, match="not JSON"):
        select(b"words", "a")
    with pytest.raises(CommandFailed, match="does not fit"):
        select(b'{"a": 1}', "length(a)")
    with pytest.raises(CommandFailed, match=r"needs: \(nothing\)"):
        select(b"", "a")


@pytest.mark.parametrize(
    "code",
    [
        "print(key)",
        "print(key); sys.exit(1)",
        "sys.exit(key)",
        "print('x' * 2040 + key); sys.exit(1)",
    ],
)
def test_no_failure_tells_a_secret_of_the_environment_nor_a_line_or_half_of_it(
    run: Run, shop: Shop, code: str
) -> None:
    """SEC-3: a key of several lines, one that is cut where the message ends, output that is not
    what it should be."""
    secret = "-- BEGIN --\n  c4n4ry-first-line\nc4n4ry-second-line\n"
    script = shop.script(
        f"import os, sys\nkey = os.environ['API_KEY']\n{code}", env={"API_KEY": secret}, result="a"
    )
    told = refusal(run, shop.call(script))
    assert "c4n4" not in told and "***" in told


def test_bytes_that_are_no_text_are_replaced(run: Run, shop: Shop) -> None:
    """SRC-4."""
    script = shop.script(r"import sys; sys.stdout.buffer.write(b'a\xff\xfeb')")
    assert run(shop.call(script))["content"][0]["text"] == "a\ufffd\ufffdb"


def test_a_failure_tells_code_and_streams_as_plain_text(run: Run, shop: Shop) -> None:
    """SRC-4, SEC-3: no terminal sequences, no secrets of its environment."""
    code = (
        "import os, sys\n"
        "print('half \\x1b[31mdone\\x1b[0m')\n"
        "print('line\\n\\x1b]0;title\\x07broken: ' + os.environ['API_KEY'], file=sys.stderr)\n"
        "print('::progress 1/2 not told here', file=sys.stderr)\n"
        "sys.exit(3)\n"
    )
    message = refusal(run, shop.call(shop.script(code, env={"API_KEY": "canary-in-the-mine"})))
    assert message == "exited with code 3\nstderr: line\nbroken: ***\nstdout: half done"
    code = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    assert refusal(run, shop.call(shop.script(code))) == "was ended by SIGSEGV"


def test_the_end_of_standard_error_and_the_beginning_of_output_are_told(
    run: Run, shop: Shop
) -> None:
    """SRC-4: bounded."""
    code = (
        "import sys\nprint('first ' + 'o' * 50_000)\n"
        "for i in range(9999): print('e' * 100, i, file=sys.stderr)\nsys.exit(1)"
    )
    message = refusal(run, shop.call(shop.script(code)))
    assert "9998" in message and "stdout: first oooo" in message
    assert len(message) < output.STDERR_TOLD + output.STDOUT_TOLD + 100


def test_too_much_output_ends_it(run: Run, shop: Shop) -> None:
    """SEC-3."""
    began = time.monotonic()
    script = shop.script("while True: print('y' * 1000)", max_output=5000)
    assert "more than 5,000 bytes ('max_output')" in refusal(run, shop.call(script))
    assert time.monotonic() - began < PATIENCE / 2
    exactly = shop.script("print('y' * 4999)", max_output=5000)
    assert len(run(shop.call(exactly))["content"][0]["text"]) == 4999


# ---- progress


class Heard:
    def __init__(self) -> None:
        self.fed = b""
        self.told: list[tuple[float, float | None, str | None]] = []

    def reports(self) -> output.Reports:
        def feed(data: bytes) -> None:
            self.fed += data

        return output.Reports(feed, lambda *told: self.told.append(told))


SAID = (
    b"hello\n::progress 1/10 one\nworld ::progress 2/10 in a line\n::progress 30% "
    b"\x1b[1mthirty\n::progress x/10\n"
    b"::progress 3/0\n::progress 5 too little by now\n::progress\n::progressing\n::progress "
    b"31.5/60\r\n"
    b"::progress -1\n::progress nan\n::progress 1e9\n::progress 99/100 unfinished"
)
REST = (
    b"hello\nworld ::progress 2/10 in a line\n::progress x/10\n::progress "
    b"3/0\n::progress\n::progressing\n"
    b"::progress -1\n::progress nan\n::progress 1e9\n"
)
TOLD = [(1, 10, "one"), (30, 100, "thirty"), (31.5, 60, None), (99, 100, "unfinished")]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50, 1000])
def test_lines_of_progress_are_told_and_taken_out(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SRC-4: in pieces of any size; what is no progress stays what it is, and progress never goes
    back."""
    monkeypatch.setattr(output, "PROGRESS_EVERY", 0.0)
    heard = Heard()

    async def go() -> None:
        reports = heard.reports()
        for at in range(0, len(SAID), size):
            reports.take(SAID[at : at + size])
        reports.end()

    asyncio.run(go())
    assert heard.fed == REST
    assert heard.told == TOLD


def test_a_flood_of_progress_is_thinned_and_its_last_is_told() -> None:
    """SRC-4."""
    heard = Heard()

    async def go() -> None:
        reports = heard.reports()
        for number in range(10_000):
            reports.take(b"::progress %d/10000\n" % number)
        reports.end()

    asyncio.run(go())
    assert heard.told[0] == (0, 10_000, None)
    assert heard.told[-1] == (9999, 10_000, None)
    assert len(heard.told) < 100


def test_progress_reaches_whoever_asked(run: Run, shop: Shop) -> None:
    """SRC-4."""
    told: list[Any] = []
    code = "import sys\nprint('::progress 1/2 half', file=sys.stderr)\nprint('done')"
    script = shop.script(code)
    assert (
        run(shop.call(script, lambda *report: told.append(report)))["content"][0]["text"] == "done"
    )
    assert told == [(1, 2, "half")]
    assert run(shop.call(script))["content"][0]["text"] == "done"


DYING = """
import signal, sys, time
def term(*_):
    for step in range(5, 9):
        print(f"::progress {step}/10 dying", file=sys.stderr, flush=True)
    open(sys.argv[1], "w").close()
    sys.exit()
signal.signal(signal.SIGTERM, term)
print("::progress 1/10 begun", file=sys.stderr, flush=True)
time.sleep(60)
"""


def test_there_is_no_progress_after_the_answer(run: Run, shop: Shop, tmp_path: Path) -> None:
    """SRC-4: a script may speak on until it is gone; a client that has its answer would take it for
    a mistake."""
    told: list[Any] = []
    script = shop.script(DYING, args=("{file}",), timeout=0.5)
    file = tmp_path / "dead"

    async def scene() -> None:
        with pytest.raises(CommandFailed, match="took longer"):
            await shop.call(script, lambda *report: told.append(report), file=str(file))
        await until(file.exists)
        await process.end_all()

    run(scene())
    assert told == [(1, 10, "begun")]


# ---- time and turns

SLEEPS = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(60)"


async def pid_in(file: Path) -> int:
    return int(await until(lambda: file.exists() and file.read_text()))


async def begun(work: Any, file: Path) -> int:
    """The process of a call that has begun: it may run before the gateway has heard that it was
    started."""
    pid = await pid_in(file)
    await until(lambda: work._children)
    return pid


def is_gone(pid: int) -> bool:
    return not os.path.exists(f"/proc/{pid}")


def test_the_time_that_is_up_ends_it(run: Run, shop: Shop) -> None:
    """SEC-3: also one that ignores SIGTERM, promptly."""
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', "
        "flush=True); time.sleep(60)"
    )
    began = time.monotonic()
    message = refusal(run, shop.call(shop.script(code, timeout=0.5)))
    assert message.startswith("took longer than 0.5 s ('timeout') and was ended")
    assert time.monotonic() - began < 5


def test_a_cancelled_call_ends_its_process(run: Run, shop: Shop) -> None:
    """SRC-4, LIF-7."""
    file = shop.folder / "pid"

    async def go() -> bool:
        call = asyncio.create_task(shop.call(shop.script(SLEEPS, args=(str(file),))))
        pid = await pid_in(file)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        return await until(lambda: is_gone(pid))

    assert run(go())


def test_a_command_that_is_closed_ends_what_runs(run: Run, shop: Shop) -> None:
    """LIF-7."""
    file = shop.folder / "pid"

    async def go() -> str:
        work = shop.work(shop.script(SLEEPS, args=(str(file),)))
        call = asyncio.create_task(work.run({}, None))
        pid = await begun(work, file)
        await work.close()
        assert await until(lambda: is_gone(pid))
        with pytest.raises(CommandFailed) as caught:
            await call
        return str(caught.value)

    assert run(go()) == "was ended by SIGTERM"


def test_who_waited_for_a_command_that_is_closed_does_not_begin(
    run: Run, shop: Shop, tmp_path: Path
) -> None:
    """SRC-6: else those who wait would run one after the other long after the command was taken
    away."""
    script = shop.script(SLEEPS, args=("{file}",), concurrency=1)
    first, second = tmp_path / "first", tmp_path / "second"

    async def scene() -> list[Any]:
        work = shop.work(script)
        calls = [
            asyncio.create_task(work.run({"file": str(file)}, None))
            for file in (first, second, second)
        ]
        await begun(work, first)
        await work.close()
        return await asyncio.gather(*calls, return_exceptions=True)

    ended, *waited = run(scene())
    assert "SIGTERM" in str(ended)
    assert ["was removed or changed" in str(one) for one in waited] == [True, True]
    assert not second.exists()


def test_a_start_that_fails_in_any_way_gives_its_turn_and_its_folder_back(
    run: Run, shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SEC-3: also one that no thread could be started for."""
    if confine.landlock_abi() < confine.LEAST_ABI:
        pytest.skip("no Landlock here")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    script = shop.script("print('fine')", concurrency=1, writable=())

    def no_thread(self: object) -> None:
        raise RuntimeError("can't start new thread")

    async def scene() -> Json:
        work = shop.work(script)
        with monkeypatch.context() as patch:
            patch.setattr("mcpx.processes.process.threading.Thread.start", no_thread)
            with pytest.raises(RuntimeError):
                await work.run({}, None)
        async with asyncio.timeout(PATIENCE):
            result = await work.run({}, None)
            await until(lambda: not list(tmp_path.glob("mcpx-script-*")))
        return result

    assert run(scene())["content"][0]["text"] == "fine"


def test_a_temporary_folder_is_removed_though_parts_of_it_were_closed(tmp_path: Path) -> None:
    """SEC-3: to root nothing is closed, so as nobody."""
    folder = tmp_path / "folder"
    (folder / "closed" / "deep").mkdir(parents=True)
    (folder / "closed" / "deep" / "file").touch()
    (folder / "link").symlink_to(tmp_path)
    pid = os.fork()
    if pid == 0:
        try:
            os.chdir(tmp_path)  # the folders above are root's alone
            if os.getuid() == 0:
                for path in (tmp_path, *tmp_path.rglob("*")):
                    os.chown(path, 65534, 65534, follow_symlinks=False)
                os.setuid(65534)
            os.chmod("folder/closed/deep", 0o500)
            os.chmod("folder/closed", 0o000)
            running.removed("folder")
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert not folder.exists() and tmp_path.exists()


def test_so_many_run_at_a_time_and_the_first_goes_first(run: Run, shop: Shop) -> None:
    """SRC-4: `concurrency`."""
    code = (
        "import os, sys, time\n"
        "name = f'running{os.getpid()}'\nopen(name, 'w').close()\n"
        "print(len([n for n in os.listdir() if n.startswith('running')]), sys.argv[1])\n"
        "sys.stdout.flush(); time.sleep(0.05)\nos.remove(name)\n"
        "open('order', 'a').write(sys.argv[1] + ' ')\n"
    )

    async def go(concurrency: int) -> list[str]:
        (shop.folder / "order").write_text("")
        work = shop.work(shop.script(code, args=("{n}",), concurrency=concurrency))
        results = await asyncio.gather(*(work.run({"n": n}, None) for n in range(6)))
        return [result["content"][0]["text"].split()[0] for result in results]

    assert run(go(1)) == ["1"] * 6
    assert (shop.folder / "order").read_text().split() == list("012345")
    assert max(map(int, run(go(3)))) <= 3


def test_the_time_of_those_who_wait_counts_and_who_gives_up_leaves_his_turn(
    run: Run, shop: Shop
) -> None:
    """SRC-4: the one that runs ignores SIGTERM, so that its turn is not free before the time of the
    next is up too."""
    ignores = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    quick = f"import sys\nif sys.argv[1:]:\n    {ignores}\nprint('quick')"

    async def go() -> tuple[str, str]:
        work = shop.work(shop.script(quick, args=("{slow}",), concurrency=1, timeout=1.0))
        slow = asyncio.create_task(work.run({"slow": "yes"}, None))
        await until(lambda: work._queue.running == 1)
        waiting = asyncio.create_task(work.run({}, None))
        cancelled = asyncio.create_task(work.run({}, None))
        await until(lambda: work._queue.waiting == 2)
        cancelled.cancel()
        messages: list[str] = []
        for call in (slow, waiting):
            with pytest.raises(CommandFailed) as caught:
                await call
            messages.append(str(caught.value))
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        await process.end_all()
        again = await work.run({}, None)
        assert again["content"][0]["text"] == "quick"
        return messages[0], messages[1]

    first, second = run(go())
    assert first.startswith("took longer")
    assert second == "waited 1 s for its turn, in vain: 1 run at a time"


def test_the_queue_is_bounded(run: Run, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """SEC-3."""
    monkeypatch.setattr(running, "MAX_WAITING", 2)

    async def go() -> None:
        work = shop.work(shop.script("", concurrency=1))
        await work._enter()
        waiting = [asyncio.create_task(work._enter()) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(CommandFailed, match="1 run and 2 wait"):
            await work._enter()
        for task in waiting:
            work._leave()
            await task
        work._leave()
        await work._enter()
        work._leave()

    run(go())


def test_all_scripts_together_are_bounded(
    run: Run, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SEC-3."""
    monkeypatch.setattr(running, "MAX_RUNNING", 2)

    async def go() -> None:
        first, second, last = [shop.work(shop.script("", concurrency=4)) for _ in range(3)]
        await first._enter()
        await second._enter()
        waiting = asyncio.create_task(last._enter())
        await until(lambda: running._queue_of_all().waiting == 1)
        assert not waiting.done()
        first._leave()
        await waiting
        second._leave()
        last._leave()

    run(go())


# ---- confined

WRITES = """
echo in > inside/file && echo inside
echo out > outside/file && echo outside
mv inside/file outside/moved && echo moved
: > outside/kept && echo emptied
rm -f outside/kept && [ ! -e outside/kept ] && echo removed
echo temporary > "$TMPDIR/file" && cat "$TMPDIR/file"
echo null > /dev/null && echo null
echo said > /dev/stderr
cat outside/kept
echo "$TMPDIR"
"""


def judge(run: Run, shop: Shop) -> None:
    """That a script writes below `inside` only."""
    inside, outside = shop.folder / "inside", shop.folder / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "kept").write_text("kept\n")
    script = shop.script(WRITES, "bash", writable=(str(inside),))
    said = run(shop.call(script))["content"][0]["text"].split("\n")
    assert said[:-1] == ["inside", "temporary", "null", "kept"]
    assert (inside / "file").read_text() == "in\n"
    assert [file.name for file in outside.iterdir()] == ["kept"]
    assert (outside / "kept").read_text() == "kept\n"

    assert run(until(lambda: not os.path.exists(said[-1])))


@pytest.mark.skipif(confine.landlock_abi() < confine.LEAST_ABI, reason="needs Landlock")
def test_landlock_holds_a_script_to_its_folders(run: Run, shop: Shop) -> None:
    """SEC-3: and mcpx itself, and what it starts afterwards, are as free as before."""
    judge(run, shop)
    code = "open('free', 'w').write('x'); print('free')"
    assert run(shop.call(shop.script(code)))["content"][0]["text"] == "free"
    (shop.folder / "own").write_text("mine")


CHANGES_MODES = "chmod 750 inside && echo inside; chmod 640 outside && echo outside; true"


def modes_changed(run: Run, shop: Shop) -> str:
    """Which folders a confined script can change the mode of."""
    (shop.folder / "inside").mkdir()
    (shop.folder / "outside").mkdir()
    script = shop.script(CHANGES_MODES, "bash", writable=(str(shop.folder / "inside"),))
    return run(shop.call(script))["content"][0]["text"]


@pytest.mark.skipif(confine.landlock_abi() < confine.LEAST_ABI, reason="needs Landlock")
def test_landlock_leaves_modes_outside_open_as_the_documentation_states(
    run: Run, shop: Shop
) -> None:
    """SEC-3: see decision 0044."""
    assert modes_changed(run, shop).split() == ["inside", "outside"]
    docs = Path(__file__).parents[2] / "docs"
    for page in ("commands.md", "security.md"):
        assert "can change the mode and the owner" in " ".join((docs / page).read_text().split())


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")
def test_bubblewrap_prevents_changes_of_modes_outside(
    run: Run, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SEC-3"""
    monkeypatch.setattr(confine, "landlock_abi", lambda: 0)
    assert modes_changed(run, shop).split() == ["inside"]


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")
def test_bubblewrap_holds_a_script_to_its_folders(
    run: Run, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SEC-3: where there is no Landlock."""
    monkeypatch.setattr(confine, "landlock_abi", lambda: 0)
    judge(run, shop)


def test_a_script_that_cannot_be_confined_is_not_run(
    run: Run, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SEC-3."""
    monkeypatch.setattr(confine, "landlock_abi", lambda: 2)
    script = shop.script("open('ran', 'w')", writable=())

    async def call() -> None:
        await shop.work(script, {"PATH": str(shop.folder)}).run({}, None)

    assert "bubblewrap ('bwrap') is not found" in refusal(run, call())
    assert not (shop.folder / "ran").exists()
    script = shop.script("", writable=(str(shop.folder / "absent"),))
    assert "which is not a folder" in refusal(run, shop.call(script))


@pytest.mark.skipif(confine.landlock_abi() < 6, reason="needs Landlock of Linux 6.12")
def test_a_confined_script_cannot_signal_the_gateway_and_can_be_ended(run: Run, shop: Shop) -> None:
    """SEC-3, LIF-7."""
    code = (
        "import os\ntry:\n    os.kill(os.getppid(), 0)\nexcept PermissionError:\n    "
        "print('refused')"
    )
    assert run(shop.call(shop.script(code, writable=())))["content"][0]["text"] == "refused"
    code = "import time; time.sleep(60)"
    assert "took longer" in refusal(run, shop.call(shop.script(code, writable=(), timeout=0.3)))


# ---- the config


def mistakes(
    script: Script, parameters: Mapping[str, bool] | None
) -> list[tuple[str, tuple[str | int, ...]]]:
    return [(wrong.what, wrong.path) for wrong in script.mistakes(parameters)]


def test_mistakes_are_told_with_their_place() -> None:
    """SRC-4, SRC-5, SEC-3."""
    script = Script(
        interpreter="py{x}",
        path="/s/{x}.py",
        cwd="/{x}",
        args=("{x}", "{y}", "{{y}}", "--opt", "{x}", "--opt={x}", "--", "{x}", "nul\0"),
        env={"A": "{z}", "PATH": "{x}", "B=C": "", "LD_PRELOAD": "/fixed"},
        stdin="{*} {x} {w}",
        result="a[",
        writable=("/a\0",),
    )
    assert mistakes(script, {"x": True}) == [
        ("no parameter named 'y'", ("args", 1)),
        ("no parameter named 'z'", ("env", "A")),
        ("a caller must not decide which code is run: no placeholder here", ("env", "PATH")),
        ("no parameter named 'w'", ("stdin",)),
        ("without a value for 'x', '--opt' would stand alone", ("args", 4)),
        ("no placeholder may stand here", ("interpreter",)),
        ("no placeholder may stand here", ("path",)),
        ("no placeholder may stand here", ("cwd",)),
        ("not a possible variable name", ("env", "B=C")),
        ("holds a NUL character", ("args", 8)),
        ("holds a NUL character", ("writable", 0)),
        ("not a JMESPath expression", ("result",)),
    ]


def test_what_is_right_is_no_mistake() -> None:
    """SRC-5."""
    script = Script(
        path="/s", args=("--opt", "{x}", "{anything}"), env={"A": "{x}"}, result="a.b", writable=()
    )
    assert mistakes(script, None) == []
    assert mistakes(script, {"x": False, "anything": True}) == []


def test_a_signal_has_its_name() -> None:
    """SRC-4."""
    assert output.ended_by(-signal.SIGKILL) == "was ended by SIGKILL"
    assert output.ended_by(-200) == "was ended by signal 200"
    assert output.ended_by(2) == "exited with code 2"
