"""RUN-4: tools, search, call, read and prompt through the real program, with and without a gateway
that runs."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli.conftest import Home, using
from fixtures.using_server import PICTURE
from kit.terminal import mcpx_on
from kit.until import wait_until


def test_tools_are_listed_by_server_and_tool_and_who_is_down_is_told(either: Home) -> None:
    ended = either.run("tools")
    head, first, *_ = ended.stdout.splitlines()
    assert head.split() == ["TOOL", "ARGUMENTS", "DESCRIPTION"]
    assert first.split() == ["one.add", "a,", "b", "Add", "two", "numbers"]
    assert ended.stdout.endswith("16 tools of 2 servers\n")
    assert (
        ended.returncode == 4 and "down is down: " in ended.stderr and "no API key" in ended.stderr
    )


@pytest.mark.parametrize(
    ("servers", "commands", "told"),
    [
        (2, 2, "16 tools of 2 servers, 2 commands"),
        (1, 1, "8 tools of 1 server, 1 command"),
        (0, 2, "2 commands"),
    ],
)
def test_commands_are_not_counted_as_a_server(
    servers: int, commands: int, told: str, tmp_path: Path
) -> None:
    """RUN-4."""
    home = Home(tmp_path)
    made = [
        {"name": f"c{at}", "type": "http", "http": {"url": "http://127.0.0.1:9/"}}
        for at in range(commands)
    ]
    home.write(*(using(f"s{at}") for at in range(servers)), commands=made)
    assert home.run("tools").stdout.splitlines()[-1] == told


def test_tools_of_one_server_start_only_that_one(home: Home) -> None:
    ended = home.run("tools", "two", "config.json")
    assert ended.returncode == 0 and ended.stdout.endswith("8 tools of 1 server\n")
    assert home.record("other") == ["started"] and home.record() == []


def test_a_call_starts_only_the_server_that_is_called(home: Home) -> None:
    assert home.run("call", "two.add", "a=1", "b=2").stdout == "3\n"
    assert home.record() == [] and home.record("other") == [
        "started",
        'called add {"a": 1, "b": 2}',
    ]


def test_tools_with_schema_are_functions_in_typescript(either: Home) -> None:
    told = either.run("tools", "one", "--schema").stdout
    assert told.startswith("// one\n/** Add two numbers */\n")
    assert (
        "function add(args: {a: number /* The first; integer */, b: number}): {sum?: number};\n"
        in told
    )
    assert 'function pick(args: {colour: "red" | "green", tags?: number[]' in told
    assert "function picture(): unknown;\n" in told


def test_tools_for_programs_are_the_same_with_and_without_a_gateway(either: Home) -> None:
    answer = either.json("tools", "--schema")
    assert [tool["name"] for tool in answer["tools"][:2]] == ["one.add", "one.pick"]
    first = answer["tools"][0]
    assert (
        first["public"] == "add"
        and first["read_only"] is True
        and first["inputSchema"]["required"] == ["a", "b"]
    )
    assert (
        next(tool for tool in answer["tools"] if tool["name"] == "two.add")["public"] == "two_add"
    )
    assert [(server["name"], server["status"]) for server in answer["down"]] == [
        ("down", "disconnected")
    ]


@pytest.mark.parametrize("words", [("delete everything",), ("删除",)])
def test_search_finds_by_words_of_either_language(either: Home, words: tuple[str, ...]) -> None:
    """FMT-3"""
    answer = either.json("search", *words, "--limit", "2")
    assert [tool["name"] for tool in answer["tools"]] == ["one.delete_all", "two.delete_all"]
    assert answer["tools"][0]["strong"] is True and "inputSchema" not in answer["tools"][0]


def test_a_search_that_finds_nothing_says_so(either: Home) -> None:
    ended = either.run("search", "xyzzy")
    assert (
        ended.returncode == 1 and ended.stdout == "" and "no tool matches 'xyzzy'" in ended.stderr
    )


# ---- arguments


@pytest.mark.parametrize(
    "words",
    [
        ("a=2", "b=0.5"),
        ("a:=2", "b:=0.5"),
        ('{"a": 2, "b": 0.5}',),
        ("b=0.5", '{"a": 2, "b": 9}'),
        ("a=2", "b=@half.txt"),
    ],
)
def test_arguments_may_be_given_in_many_ways(either: Home, words: tuple[str, ...]) -> None:
    (either.folder / "half.txt").write_text("0.5")
    ended = either.run("call", "one.add", *words)
    assert (ended.stdout, ended.returncode) == ("2.5\n", 0), ended.stderr


def test_all_arguments_behind_json_are_taken_and_the_raw_result_printed(either: Home) -> None:
    """RUN-4: `--json '{…}'` as one would write it."""
    ended = either.run("call", "one.add", "--json", '{"a": 1, "b": 2}')
    assert json.loads(ended.stdout)["structuredContent"] == {"sum": 3}


def test_arguments_are_read_from_standard_input(either: Home) -> None:
    assert either.run("call", "one.add", "-", stdin='{"a": 1, "b": 1}').stdout == "2\n"


def test_a_list_is_a_key_said_twice_or_the_one_value_there_is(either: Home) -> None:
    assert either.run("call", "one.pick", "colour=red", "tags=1", "tags=2").stdout == "red [1, 2]\n"
    assert either.run("call", "one.pick", "colour=red", "tags=7").stdout == "red [7]\n"
    assert either.run("call", "one.pick", "colour=red", "tags=[3]").stdout == "red [3]\n"


def test_wrong_arguments_are_told_as_models_are_told_and_nothing_is_called(either: Home) -> None:
    """SUR-9: the checker's own words, and the signature."""
    ended = either.run("call", "one.add", "a=x", "c=1")
    assert ended.returncode == 2 and ended.stdout == ""
    first, *_, last = ended.stderr.splitlines()
    assert (
        first.startswith("error: ")
        and last == "  one.add({a: number /* The first; integer */, b: number})"
    )
    assert "b: missing" in ended.stderr or "b: " in ended.stderr
    ended = either.run("call", "one.add", "a=1", "b=x")
    assert "b: expected" in ended.stderr and "a: expected" not in ended.stderr  # which is right
    ended = either.run("call", "one.pick", "colour=blue")
    assert ended.returncode == 2 and '"red"' in ended.stderr
    assert not any(line.startswith("called") for line in either.record())


def test_words_that_are_no_arguments_are_mistakes(home: Home) -> None:
    for word, told in (
        ("nonsense", "'nonsense' is no argument"),
        ("a:={", "a: not JSON"),
        ("a=@nowhere", "nowhere cannot be read"),
        ("{]", "not JSON"),
    ):
        ended = home.run("call", "one.add", word)
        assert ended.returncode == 2 and told in ended.stderr, ended.stderr


# ---- names


def test_a_misspelt_tool_or_server_is_told_with_what_was_meant(either: Home) -> None:
    for name, told in (
        ("one.ad", "one has no tool 'ad'; did you mean one.add?"),
        ("oen.add", "no server is named 'oen'; did you mean one.add?"),
        ("one", "one is a server; say which tool: mcpx tools one"),
    ):
        ended = either.run("call", name)
        assert (ended.returncode, ended.stderr) == (2, f"error: {told}\n")
    ended = either.run("tools", "tow")
    assert (ended.returncode, ended.stderr) == (
        2,
        "error: no server is named 'tow'; did you mean 'two'?\n",
    )


def test_the_public_name_of_a_tool_calls_it(either: Home) -> None:
    assert either.run("call", "two_add", "a=1", "b=1").stdout == "2\n"


def test_an_unqualified_call_starts_only_the_server_that_had_the_tool_before(home: Home) -> None:
    """RUN-4: it looks at the tools of earlier runs first, and reports that it starts all
    servers."""
    assert home.run("call", "two_add", "a=1", "b=1").stdout == "2\n"
    first = home.run("call", "one_off", "a=1")
    assert (
        "'one_off' names no server and is not known from an earlier run; starting 3 servers"
        in first.stderr
    )
    home.forget()
    ended = home.run("call", "two_add", "a=1", "b=1")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "2\n", "")
    assert home.record() == [] and home.record("other")[0] == "started"


def test_a_tool_that_its_server_no_longer_has_is_looked_for_in_all_of_them(home: Home) -> None:
    """RUN-4: what an earlier run knew may be out of date."""
    assert home.run("call", "two_add", "a=1", "b=1").stdout == "2\n"
    for file in (home.folder / "state" / "snapshots").glob("*.json"):
        file.write_text(file.read_text().replace('"name":"add"', '"name":"plus"'))
    home.forget()
    ended = home.run("call", "two_plus", "a=1", "b=1")
    assert ended.returncode == 2 and "there is no tool 'two_plus'" in ended.stderr
    assert home.record()[:1] == home.record("other")[:1] == ["started"]


def test_mistakes_are_json_where_json_is_read(either: Home) -> None:
    ended = either.run("call", "one.nothing", "--json")
    error = json.loads(ended.stderr)["error"]
    assert ended.returncode == 2 and error["code"] == "not_found" and ended.stdout == ""


# ---- results


def test_a_tool_that_failed_is_exit_code_1_with_its_words_on_stderr(either: Home) -> None:
    ended = either.run("call", "one.fail")
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", "fail did not work\n")
    ended = either.run("call", "one.fail", "--json")
    assert ended.returncode == 1 and json.loads(ended.stdout)["isError"] is True


def test_a_picture_is_told_by_its_size_or_saved(either: Home) -> None:
    told = either.run("call", "one.picture").stdout
    assert told == f"look\n[image, image/png, {len(PICTURE)} bytes; -o FILE saves it]\n"
    ended = either.run("call", "one.picture", "-o", "it.png")
    assert ended.stdout == "look\n" and "wrote it.png" in ended.stderr
    assert (either.folder / "it.png").read_bytes() == PICTURE


def test_an_expression_picks_of_the_result(either: Home) -> None:
    assert json.loads(either.run("call", "one.report", "--jmespath", "rows[].id").stdout) == [1, 2]
    assert either.run("call", "one.picture", "--jmespath", "content[0].text").stdout == "look\n"
    ended = either.run("call", "one.report", "--jmespath", "rows[")
    assert ended.returncode == 2 and "--jmespath" in ended.stderr


def test_a_server_that_is_down_is_exit_code_4_with_the_reason(either: Home) -> None:
    ended = either.run("call", "down.anything")
    assert ended.returncode == 4 and "no API key" in ended.stderr


def test_a_call_that_takes_too_long_is_cancelled_at_its_server(either: Home) -> None:
    """LIF-6; exit code 124."""
    ended = either.run("call", "one.slow", "seconds=60", "--timeout", "1")
    assert ended.returncode == 124 and "took longer than 1 s" in ended.stderr
    wait_until(lambda: "cancelled" in either.record())


def test_ctrl_c_cancels_a_call_at_its_server(either: Home) -> None:
    """LIF-6; exit code 130, and no traceback."""
    words = [sys.executable, "-m", "mcpx", "call", "one.slow", "seconds=60"]
    child = subprocess.Popen(
        words, cwd=either.folder, env=either.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    wait_until(lambda: any(line.startswith("called slow") for line in either.record()))
    child.send_signal(signal.SIGINT)
    _, stderr = child.communicate(timeout=60)
    assert child.returncode == 130 and b"Traceback" not in stderr
    wait_until(lambda: "cancelled" in either.record())


def test_a_rule_that_refuses_is_exit_code_6(home: Home) -> None:
    """SEC-7"""
    rule = {"effect": "deny", "tools": ["delete_all"], "reason": "not today"}
    asks = {"effect": "ask", "tools": ["add"]}
    home.write(using("one"), policy={"rules": [rule, asks]})
    ended = home.run("call", "one.delete_all")
    assert ended.returncode == 6 and "not today" in ended.stderr
    child = home.gateway()
    try:
        assert home.run("call", "one.delete_all").returncode == 6
        ended = home.run("call", "one.add", "a=1", "b=1", "--json")
        error = json.loads(ended.stderr)["error"]
        assert ended.returncode == 6 and error["code"] == "needs_approval"
        assert (
            home.run(
                "approve", error["rpc"]["data"]["approval"], "--config", "config.json", "--yes"
            ).returncode
            == 0
        )
        assert home.run("call", "one.add", "a=1", "b=1").stdout == "2\n"
    finally:
        child.end()


def test_a_profile_hides_what_it_does_not_show(either: Home) -> None:
    """SEC-2"""
    ended = either.run("tools", "--profile", "nobody")
    assert ended.returncode == 2 and "no profile is named 'nobody'" in ended.stderr


def test_what_a_server_asks_is_declined_where_nobody_sits(either: Home) -> None:
    ended = either.run("call", "one.ask")
    assert json.loads(ended.stdout) == {"action": "decline"}
    assert "Who are you?; declined: nobody sits here" in ended.stderr


# ---- resources and prompts


def test_resources_are_listed_and_read(either: Home) -> None:
    assert "one     using://text" in either.run("read").stdout
    assert either.run("read", "using://text").stdout == "what it says\n"
    ended = either.run("read", "using://bytes", "-o", "bytes.png")
    assert (either.folder / "bytes.png").read_bytes() == PICTURE and ended.stdout == ""
    wrapped = either.json("read")["resources"][0]["uri"]
    assert either.run("read", wrapped).stdout == "what it says\n"
    ended = either.run("read", "using://txt")
    assert ended.returncode == 2 and "did you mean using://text?" in ended.stderr


def test_prompts_are_listed_and_got(either: Home) -> None:
    assert "one.greet  who" in either.run("prompt").stdout
    assert either.run("prompt", "one.greet", "who=Ada").stdout == "Hello Ada!\n"
    ended = either.run("prompt", "one.greet", "whom=Ada")
    assert (
        ended.returncode == 2
        and "who: missing" in ended.stderr
        and "did you mean who?" in ended.stderr
    )
    assert either.run("prompt", "one.gret").returncode == 2


def test_without_a_config_the_demo_is_used_and_nothing_is_written(tmp_path: Path) -> None:
    """RUN-3"""
    home = Home(tmp_path)
    assert home.run("call", "demo.calculate", "expression=6*7").stdout == "42\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home"] and not any(
        (tmp_path / "home").iterdir()
    )


# ---- what is imported


def loaded(home: Home, *words: str) -> list[str]:
    heavy = (
        "fastapi",
        "pydantic",
        "uvicorn",
        "mcpx.core",
        "mcpx.upstreams",
        "mcpx.config",
        "mcpx.surfaces",
        "yaml",
    )
    code = (
        "import sys, atexit; atexit.register(lambda: sys.stderr.write('HEAVY' + repr([m for m "
        f"in {heavy} if m in "
    )
    code += f"sys.modules]))); sys.argv[1:] = {list(words)}; from mcpx.cli.main import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=home.folder,
        env=home.environ,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return eval(ended.stderr.rpartition("HEAVY")[2])


def test_tools_import_no_web_framework_and_with_a_gateway_none_of_its_rooms(
    either: Home, request: pytest.FixtureRequest
) -> None:
    """RUN-4"""
    found = loaded(either, "tools", "--json")
    assert not {"fastapi", "pydantic", "uvicorn"} & set(found)
    if "running" in request.node.name:
        assert (
            found == [] and loaded(either, "status") == [] and loaded(either, "search", "add") == []
        )


# ---- on a terminal


def test_on_a_terminal_a_row_is_one_line(either: Home) -> None:
    with mcpx_on(either.folder, either.environ, "tools", "one", columns=60) as screen:
        assert screen.end() == 0
        rows = screen.text.splitlines()
    assert max(map(len, rows)) <= 60 and any(row.startswith("one.add") for row in rows)


def test_who_is_waited_for_is_told_while_slow_servers_start(home: Home) -> None:
    """RUN-4: and the line is gone afterwards."""
    home.write(using("quick"), using("late", "--delay", "2"))
    with mcpx_on(home.folder, home.environ, "tools") as screen:
        screen.wait_for(r"… starting late \(python[\d.]*\), 1 of 2 up")
        assert screen.end() == 0
    assert re.match(r", \d+ s\x1b\[0m\r\x1b\[K", screen.raw.rpartition("of 2 up")[2])


def test_a_list_of_all_does_not_wait_for_one_that_hangs_and_names_it(home: Home) -> None:
    """RUN-4: what is known of it from last time is listed; asked for alone, it is waited for."""
    wait = {"global": {"first_start_wait": 0.5}}
    home.write(using("quick"), using("late", "--delay", "600"), **wait)
    for words in (("tools",), ("search", "add")):
        ended = home.run(*words)
        assert "quick.add" in ended.stdout and "late." not in ended.stdout
        assert ended.stderr == "still starting, and not listed yet (mcpx tools NAME waits): late\n"
    assert home.json("tools")["down"] == [
        {"name": "late", "status": "connecting", "last_error": None}
    ]
    hangs = home.folder / "hangs"
    late = using("late", "--delay-while", str(hangs))
    home.write(using("quick"), late, **wait)
    assert "late.add" in home.run("tools").stdout
    hangs.touch()
    ended = home.run("tools")
    assert (ended.returncode, ended.stderr) == (
        4,
        "still starting, and listed as last time: late\n",
    )
    assert "late.add" in ended.stdout


def test_whoever_cannot_wait_for_the_end_is_let_go_without_a_word(home: Home) -> None:
    home.write(using("late", "--delay", "600"))
    with mcpx_on(home.folder, home.environ, "tools") as screen:
        screen.wait_for("… starting late")
        for _ in range(3):
            screen.type("\x03")
        assert screen.end() == 130
    assert "Task" not in screen.text and "Traceback" not in screen.text


def test_progress_is_told_while_a_call_runs(either: Home) -> None:
    with mcpx_on(either.folder, either.environ, "call", "one.slow", "seconds=3") as screen:
        screen.wait_for(r"one\.slow: \d of 10, step \d")
        assert screen.end() == 0 and screen.text.rstrip().endswith("done")


def test_a_form_is_filled_in_on_the_terminal(either: Home) -> None:
    with mcpx_on(either.folder, either.environ, "call", "one.ask") as screen:
        screen.wait_for(r"one asks: Who are you\?")
        screen.wait_for(r"name \(string\): ")
        screen.type("\n")
        screen.wait_for("it has to be given")
        screen.type("Ada\n")
        screen.wait_for(r"age \(whole number, may be left out\): ")
        screen.type("x\n")
        screen.wait_for("it is a whole number")
        screen.type("36\n")
        screen.wait_for(r"colour \(red \| green, default red\): ")
        screen.type("\n")
        screen.wait_for(r"sure \(y/n\): ")
        screen.type("y\n")
        assert screen.end() == 0
    answer = json.loads(screen.text[screen.text.rindex('{\n  "action"') :])
    assert answer == {
        "action": "accept",
        "content": {"name": "Ada", "age": 36, "colour": "red", "sure": True},
    }


def test_ctrl_d_declines_and_ctrl_c_interrupts_a_question(either: Home) -> None:
    with mcpx_on(either.folder, either.environ, "call", "one.ask") as screen:
        screen.wait_for(r"name \(string\): ")
        screen.type("\x04")
        assert screen.end() == 0 and '"action": "decline"' in screen.text
    with mcpx_on(either.folder, either.environ, "call", "one.ask") as screen:
        screen.wait_for(r"name \(string\): ")
        screen.type("\x03")
        assert screen.end() == 130 and "Traceback" not in screen.text
