"""RUN-4: `mcpx add` takes whatever somebody has of a server, tries it, and writes it so that
nothing else changes."""

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kit.command import run_command
from kit.gateway import Gateway
from kit.servers import SHOP_SERVER
from kit.user import User

SECRET = "sk-test-4f9a8b7c6d5e4f3a2b1c"
PETS = """\
openapi: 3.1.0
info: {title: Pet API}
servers: [{url: "https://pets.example/v1"}]
paths:
  /pets: {get: {operationId: listPets, tags: [read]}, post: {operationId: makePet}}
"""


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


def servers(path: Path) -> dict[str, dict[str, object]]:
    return {each["name"]: each for each in yaml.safe_load(path.read_text())["mcp_servers"]}


def test_a_command_line_becomes_a_server_of_the_users_own_file(user: User) -> None:
    """RUN-2, RUN-4: without a config one is made, for its owner alone; what was found is said."""
    done = user.run("add", sys.executable, SHOP_SERVER)
    assert done.returncode == 0, done.stderr
    assert "A command line: a server that is started as a program" in done.stdout
    assert "shop works" in done.stdout and "6 tools: every_kind, slow" in done.stdout
    assert f"added server 'shop' to {user.user_config} (a new file)" in done.stdout
    connection = {"type": "stdio", "command": sys.executable, "args": [SHOP_SERVER]}
    assert servers(user.user_config) == {"shop": {"name": "shop", "connection": connection}}
    assert stat.S_IMODE(user.user_config.stat().st_mode) == 0o600
    assert user.run("check").returncode == 0


@pytest.mark.parametrize("name", ["a${HOME}", "a$${HOME}", "a${keyring:b}", "a$$b"])
def test_a_name_refers_to_nothing(user: User, name: str) -> None:
    """A stranger's is taken without its references; one's own is refused with what could be one."""
    entry = {"command": sys.executable, "args": [SHOP_SERVER]}
    done = user.run("add", json.dumps({"mcpServers": {name: entry}}))
    assert done.returncode == 0, done.stderr
    (made,) = servers(user.user_config)
    assert made == name.replace("$${", "{").replace("${", "{").replace("$$", "$")
    done = user.run("add", "--name", name, "--", sys.executable, SHOP_SERVER)
    assert done.returncode == 2 and f"{made!r} could be its name" in done.stderr


def test_options_go_before_a_command_line_and_on_either_side_of_anything_else(user: User) -> None:
    done = user.run(
        "add",
        "--name",
        "a",
        "--prefix",
        "p",
        "--description",
        "d",
        "--",
        sys.executable,
        SHOP_SERVER,
        "3",
    )
    assert done.returncode == 0, done.stderr
    entry = servers(user.user_config)["a"]
    assert entry["prefix"] == "p" and entry["description"] == "d"
    assert entry["connection"]["args"] == [SHOP_SERVER, "3"]  # type: ignore[index]
    done = user.run(
        "add", "https://h.example/mcp", "--name", "b", "--no-test", "--disabled", "--json"
    )
    told = json.loads(done.stdout)
    assert done.returncode == 0 and told["added"] == [{"section": "mcp_servers", "name": "b"}]
    assert servers(user.user_config)["b"]["enabled"] is False


def test_a_server_that_fails_its_trial_is_written_only_with_force(user: User) -> None:
    """RUN-4: the reason, and what mends it, are shown; `--yes` alone writes nothing."""
    done = user.run("add", "--name", "x", "no-such-program-anywhere", "arg")
    assert done.returncode == 1 and not user.user_config.exists()
    assert "x does not work: " in done.stderr and "was not found on the PATH" in done.stderr
    assert "--force" in done.stderr
    told = json.loads(user.run("add", "--json", "no-such-program-anywhere").stdout)
    assert (
        told["added"] == [] and told["tried"][0]["ok"] is False and told["tried"][0]["cause"]["fix"]
    )
    done = user.run("add", "--yes", "--name", "x", "no-such-program-anywhere")
    assert (
        done.returncode == 1
        and "Nothing was written" in done.stderr
        and not user.user_config.exists()
    )
    done = user.run("add", "--force", "--name", "x", "no-such-program-anywhere")
    assert done.returncode == 0 and list(servers(user.user_config)) == ["x"]


FAKE_UVX = f"""#!{sys.executable}
import os, sys
if sys.argv[1:3] != ["--with", "mcp<2"]:
    sys.exit("AttributeError: 'Server' object has no attribute 'list_resources'")
os.execv({sys.executable!r}, [{sys.executable!r}, {SHOP_SERVER!r}])
"""


@pytest.mark.needs("programs")
def test_a_server_for_version_1_of_the_python_sdk_is_added_with_that_version(user: User) -> None:
    """RUN-4: `add` offers the arguments that fix it, tries again, and writes them."""
    uvx = user.write_file("programs/uvx", FAKE_UVX)
    uvx.chmod(0o755)
    user.environ["PATH"] = f"{uvx.parent}:{user.environ['PATH']}"
    done = user.run("add", "uvx", "mcp-server-shop")
    assert (
        done.returncode == 1 and "start it with version 1: `uvx --with 'mcp<2' …`" in done.stderr
    ), done
    assert not user.user_config.exists()
    repaired = ["--with", "mcp<2", "mcp-server-shop"]
    done = user.run("add", "--yes", "uvx", "mcp-server-shop")
    assert done.returncode == 0 and "shop works" in done.stdout, done
    assert servers(user.user_config)["shop"]["connection"]["args"] == repaired  # type: ignore[index]
    answers = {"Do so? [Y/n]": "", "Add it? [Y/n]": ""}
    code, screen = user.run_in_terminal(
        "add", "--name", "two", "uvx", "mcp-server-shop", answers=answers
    )
    assert code == 0 and "two works" in screen, screen
    assert servers(user.user_config)["two"]["connection"]["args"] == repaired  # type: ignore[index]


def test_the_good_servers_of_a_file_are_added_and_the_others_are_reported(user: User) -> None:
    """RUN-4: a mistake in the text, in a value, a name that another server has, and a failed
    trial."""
    user.write_config("mcp_servers: [{name: taken, connection: {type: stdio, command: other}}]\n")
    shop = {"command": sys.executable, "args": [SHOP_SERVER]}
    given = {
        "shop": shop,
        "nothing": {"note": "neither a program nor an address"},
        "number": {"command": 3},
        "taken": {"command": "another"},
        "absent": {"command": "no-such-program-anywhere", "env": {"API_KEY": SECRET}},
    }
    (user.folder / "given.json").write_text(json.dumps({"mcpServers": given}))
    done = user.run("add", "given.json", "--yes", "--json")
    told = json.loads(done.stdout)
    assert done.returncode == 1 and told["added"] == [{"section": "mcp_servers", "name": "shop"}], (
        done
    )
    reasons = {each["name"]: each["reason"] for each in told["left_out"]}
    assert reasons.keys() == {"nothing", "number", "taken", "absent"}
    assert (
        "neither 'command' nor 'url'" in reasons["nothing"]
        and "connection.command" in reasons["number"]
    )
    assert "already" in reasons["taken"] and "--force" in reasons["absent"]
    assert (
        list(servers(user.folder / "mcpx.yaml")) == ["taken", "shop"]
        and not (user.folder / ".env").exists()
    )
    done = user.run("add", "given.json", "--dry-run", "--replace")
    assert "error: 'nothing' was not added: neither" in done.stderr and done.returncode == 1
    done = user.run("add", "given.json", "--force", "--replace")
    assert done.returncode == 1 and list(servers(user.folder / "mcpx.yaml")) == [
        "taken",
        "shop",
        "absent",
    ]


def test_variables_are_set_with_the_letter_e_as_in_claude_mcp_add(user: User) -> None:
    """RUN-4: before the program, after a name, with an address of a file; behind a program it is
    reported."""
    program = ("some-program", "-y")
    words: dict[str, tuple[str, ...]] = {
        "a": ("--name", "a", "-e", "K=v", *program),
        "b": ("b", "-e", "K=v", "--", *program),
        "c": ("-e", "K=v", "c", "--", *program),
        "d": ('{"mcpServers": {"d": {"command": "some-program", "args": ["-y"]}}}', "-e", "K=v"),
        "e": ("some-program -y", "-e", "K=v", "--name", "e"),
    }
    for name, its in words.items():
        done = user.run("add", "--no-test", *its)
        assert done.returncode == 0 and "warning" not in done.stderr, done
        connection = {"type": "stdio", "command": "some-program", "args": ["-y"], "env": {"K": "v"}}
        assert servers(user.user_config)[name]["connection"] == connection, name
    done = user.run("add", "--no-test", "--name", "f", *program, "-e", "K=v")
    assert (
        "-e follows the program and is passed to it" in done.stderr
        and "mcpx add -e … some-program …" in done.stderr
    )
    assert servers(user.user_config)["f"]["connection"]["args"] == ["-y", "-e", "K=v"]  # type: ignore[index]
    done = user.run(
        "add", "--no-test", "linear", "https://mcp.linear.example/sse", "--header", "A: b"
    )
    assert servers(user.user_config)["linear"]["connection"]["headers"] == {"A": "b"}, done  # type: ignore[index]


def test_a_variable_of_a_container_is_passed_and_asked_for(user: User) -> None:
    """RUN-4: `docker run -e NAME` takes the value from the environment of docker, which is the
    server's `env`."""
    line = ("docker", "run", "-i", "--rm", "-e", "API_KEY", "--env=ZONE", "mcp/maps", "-e", "OWN")
    done = user.run("add", "--no-test", *line, ZONE="x")
    assert (
        done.returncode == 2
        and "it needs API_KEY" in done.stderr
        and "--set 'API_KEY=" in done.stderr
    ), done
    done = user.run("add", "--no-test", "--set", f"API_KEY={SECRET}", *line, ZONE="x")
    assert (
        done.returncode == 0
        and "warning" not in done.stderr
        and SECRET not in done.stdout + done.stderr
    ), done
    connection = servers(user.user_config)["maps"]["connection"]
    assert connection["args"] == list(line[1:])  # type: ignore[index]
    assert connection["env"] == {"API_KEY": "${API_KEY}", "ZONE": "${ZONE}"}  # type: ignore[index]
    assert SECRET in (user.user_config.parent / ".env").read_text()
    snippet = json.dumps(
        {"maps2": {"command": "docker", "args": list(line[1:]), "env": {"ZONE": "y"}}}
    )
    code, screen = user.run_in_terminal(
        "add", "--no-test", snippet, "--name", "two", answers={"Add it?": ""}
    )
    assert code == 0, screen
    assert servers(user.user_config)["two"]["connection"]["env"] == {
        "API_KEY": "${API_KEY}",
        "ZONE": "y",
    }  # type: ignore[index]
    words = ("add", "--no-test", "docker", "run", "-e", "OTHER", "mcp/other")
    code, screen = user.run_in_terminal(
        *words, answers={"OTHER": SECRET, "[E/k/c]": "", "Add it?": ""}
    )
    assert code == 0 and SECRET not in screen, screen
    assert f"OTHER={SECRET}" in (user.user_config.parent / ".env").read_text()


def test_a_setting_may_be_a_reference(user: User) -> None:
    """RUN-4, SRC-7: for an OpenAPI document as for a bundle; a setting that nothing takes is a
    mistake."""
    key = (
        "components: {securitySchemes: {key: {type: http, scheme: bearer}}}\nsecurity: [{key: "
        "[]}]\n"
    )
    (user.folder / "pets.yaml").write_text(PETS + key)
    done = user.run("add", "pets.yaml", "--set", "PET_KEY_TOKEN=${PKEY}", PKEY=SECRET)
    assert done.returncode == 0 and not (user.user_config.parent / ".env").exists(), done
    (auth,) = yaml.safe_load(user.user_config.read_text())["auth_configs"]
    assert (
        auth["bearer_token"] == {"token": "${PKEY}"}
        and user.run("check", PKEY=SECRET).returncode == 0
    )
    done = user.run("add", "pets.yaml", "--set", "OTHER=x", "--replace", PKEY=SECRET)
    assert done.returncode == 2 and "there is PET_KEY_TOKEN" in done.stderr, done
    done = user.run("add", "--set", "OTHER=x", "program")
    assert (
        done.returncode == 2
        and "takes no settings" in done.stderr
        and "-e KEY=VALUE" in done.stderr
    )


def test_comments_and_order_stay_and_there_is_a_way_back(user: User) -> None:
    """CFG-6."""
    entry = "{name: a, connection: {type: stdio, command: x}}"
    before = f"# mine\nmode: search   # why\n\nmcp_servers:\n  # first\n  - {entry}\n"
    path = user.write_config(before + "\nglobal: {log_level: WARNING}\n")
    assert user.run("add", sys.executable, SHOP_SERVER).returncode == 0
    text = path.read_text()
    assert text.startswith(before) and text.endswith("\nglobal: {log_level: WARNING}\n")
    assert list(servers(path)) == ["a", "shop"]
    history = json.loads(user.run("config", "history", "--json").stdout)["revisions"]
    assert [each["author"] for each in history] == ["command line", ""]
    assert history[0]["message"] == "add server 'shop'"
    assert user.run("config", "rollback", "1").returncode == 0
    assert path.read_text() == before + "\nglobal: {log_level: WARNING}\n"


def test_a_clients_file_is_written_in_its_own_shape(user: User) -> None:
    """CFG-2, CFG-6: comments of JSON with comments too."""
    path = user.write_config(
        '{\n  // mine\n  "mcpServers": {\n    "a": {"command": "x"}\n  }\n}\n', "config.json"
    )
    done = user.run("add", "--env", "K=v", sys.executable, SHOP_SERVER)
    assert done.returncode == 0, done.stderr
    text = path.read_text()
    assert "// mine" in text
    found = json.loads(text.replace("// mine", ""))["mcpServers"]
    assert found["shop"] == {"command": sys.executable, "args": [SHOP_SERVER], "env": {"K": "v"}}


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ('{"mcpServers": {"a": {"command": "x"}, "b": {"url": "https://h/sse"}}}', ["a", "b"]),
        ('[mcp_servers.c]\ncommand = "x"\n', ["c"]),
        (
            "mcp_servers:\n  - name: d\n    connection: {type: websocket, url: 'wss://h/ws'}\n",
            ["d"],
        ),
        ("claude mcp add e -- npx -y e", ["e"]),
    ],
)
def test_snippets_are_taken_as_an_argument_a_file_or_standard_input(
    user: User, given: str, names: list[str]
) -> None:
    (user.folder / "given.txt").write_text(given)
    for words, stdin in (((given,), ""), (("given.txt",), ""), (("-",), given)):
        done = user.run("add", *words, "--no-test", "--json", "--dry-run", stdin=stdin)
        assert done.returncode == 0, done.stderr
        assert all(f"name: {name}" in json.loads(done.stdout)["files"][0]["diff"] for name in names)
    assert not user.user_config.exists()
    assert user.run("add", given, "--no-test").returncode == 0
    assert list(servers(user.user_config)) == names


def test_requests_become_commands(user: User) -> None:
    """SRC-7: an OpenAPI document, of which some are picked, and a curl line."""
    (user.folder / "pets.yaml").write_text(PETS)
    done = user.run("add", "pets.yaml", "--tag", "read")
    assert done.returncode == 0 and "An OpenAPI document “Pet API”: 1 operation" in done.stdout, (
        done.stderr
    )
    done = user.run(
        "add",
        "--name",
        "one_pet",
        "curl",
        "https://pets.example/v1/pets/1",
        "-H",
        f"X-Api-Key: {SECRET}",
    )
    assert done.returncode == 0 and SECRET not in done.stdout + done.stderr, done
    commands = yaml.safe_load(user.user_config.read_text())["commands"]
    assert [each["name"] for each in commands] == [
        "listPets",
        "one_pet",
    ] and SECRET not in user.user_config.read_text()
    assert (
        SECRET in (user.user_config.parent / ".env").read_text()
        and user.run("check").returncode == 0
    )


def test_a_key_of_an_api_is_asked_for_or_given(user: User) -> None:
    """An API's key that is nowhere would make the whole config a mistake."""
    key = (
        "components: {securitySchemes: {key: {type: http, scheme: bearer}}}\nsecurity: [{key: "
        "[]}]\n"
    )
    (user.folder / "pets.yaml").write_text(PETS + key)
    done = user.run("add", "pets.yaml")
    assert (
        done.returncode == 2
        and "--set 'PET_KEY_TOKEN=" in done.stderr
        and not user.user_config.exists()
    ), done
    done = user.run("add", "pets.yaml", "--set", f"PET_KEY_TOKEN={SECRET}")
    assert (
        done.returncode == 0
        and SECRET not in done.stdout + done.stderr + user.user_config.read_text()
    ), done
    assert user.run("check").returncode == 0


def test_secrets_go_to_a_file_beside_and_are_never_printed(user: User) -> None:
    """CFG-9: the server is tried with them; what is there already under the name is not
    overwritten."""
    env = user.user_config.parent / ".env"
    env.parent.mkdir(parents=True, mode=0o700)
    env.write_text("# mine\nAPI_KEY=other\n")
    done = user.run(
        "add", "--env", f"API_KEY={SECRET}", "--env", "PLAIN=x", sys.executable, SHOP_SERVER
    )
    assert done.returncode == 0 and SECRET not in done.stdout + done.stderr, done
    assert servers(user.user_config)["shop"]["connection"]["env"] == {
        "API_KEY": "${API_KEY_2}",
        "PLAIN": "x",
    }  # type: ignore[index]
    assert env.read_text() == f"# mine\nAPI_KEY=other\nAPI_KEY_2={SECRET}\n"
    assert stat.S_IMODE(env.stat().st_mode) == 0o600
    assert "API_KEY_2" not in user.run("check").stderr
    told = user.run(
        "add",
        "--secrets",
        "config",
        "--name",
        "b",
        "--env",
        f"API_KEY={SECRET}",
        sys.executable,
        SHOP_SERVER,
    )
    assert (
        told.returncode == 0
        and SECRET not in told.stdout + told.stderr
        and SECRET in user.user_config.read_text()
    )


@pytest.mark.parametrize(
    ("word", "written"),
    [
        (
            ("--header", f"Authorization: Bearer {SECRET}"),
            ["--header", "Authorization: Bearer ${S_TOKEN}"],
        ),
        ((f"--api-key={SECRET}",), ["--api-key=${S_TOKEN}"]),
        (("--token", SECRET), ["--token", "${S_TOKEN}"]),
        (("postgresql://me:s3cretpw99@host/db",), ["postgresql://me:${S_TOKEN}@host/db"]),
    ],
)
def test_secrets_typed_into_arguments_go_to_the_file_beside(
    word: tuple[str, ...], written: list[str], user: User
) -> None:
    """CFG-9: references replace the secrets, and the server gets the values."""
    done = user.run("add", "--no-test", "--name", "s", "program", *word)
    assert (
        done.returncode == 0 and "secrets go to" in done.stdout and "warning" not in done.stderr
    ), done
    assert servers(user.user_config)["s"]["connection"]["args"] == written  # type: ignore[index]
    secret = "s3cretpw99" if "s3cretpw99" in word[0] else SECRET
    assert secret not in done.stdout + done.stderr + user.user_config.read_text()
    from mcpx.config import load

    assert load(user.user_config, {}).mcp_servers[0].connection.args == word  # type: ignore[attr-defined]


@pytest.mark.parametrize("has_git", [True, False])
def test_secrets_in_a_repository_that_does_not_ignore_them_are_reported(
    has_git: bool, user: User
) -> None:
    """CFG-9: with the line to add. Without git, the usual lines of a .gitignore are known."""
    subprocess.run(["git", "init", "-q", str(user.folder)], check=True)
    path = {} if has_git else {"PATH": str(user.home)}
    config = user.folder / "sub" / "mcpx.yaml"
    config.parent.mkdir()
    config.write_text("mode: direct\n")
    words = ("add", "--config", str(config), "--no-test", "--env", f"API_KEY={SECRET}", "program")
    told = f"add the line /sub/.env to {user.folder / '.gitignore'}"
    done = user.run(*words[:-1], "--dry-run", "program", **path)
    assert told in done.stderr and done.returncode == 0, done
    assert (
        told
        in json.loads(user.run(*words[:-1], "--name", "j", "--json", "program", **path).stdout)[
            "warnings"
        ][0]
    )
    (user.folder / ".gitignore").write_text("*.log\n/sub/.env\n")
    done = user.run(*words[:-1], "--name", "k", "program", **path)
    assert done.returncode == 0 and "git" not in done.stderr, done
    done = user.run(*words[:-1], "--name", "l", "--secrets", "config", "program", **path)
    assert done.returncode == 0 and "git" not in done.stderr, done


@pytest.mark.parametrize("form", ["{%s}", "{\n  %s\n}\n"], ids=["one line", "one long line"])
def test_the_difference_of_a_long_line_is_shown_in_lines(user: User, form: str) -> None:
    """CFG-6: the file keeps its form."""
    servers = (
        '"mcpServers": {"a": {"command": "x"}, "b": {"command": "y", "args": ["a long '
        'argument of a server"]}}'
    )
    path = user.write_config(form % servers, "config.json")
    done = user.run("add", "--no-test", "--name", "c", "program")
    assert done.returncode == 0 and '      "c": {\n        "command": "program"\n' in done.stdout, (
        done
    )
    assert path.read_text().count("\n") == form.count("\n")
    assert json.loads(path.read_text())["mcpServers"].keys() == {"a", "b", "c"}
    done = user.run("remove", "a", "--dry-run")
    assert '  -    "a": {\n  -      "command": "x"\n' in done.stdout and '"b"' not in done.stdout, (
        done
    )


def test_the_tools_that_a_client_hides_are_hidden(user: User) -> None:
    """RUN-4: under the name that the server gets."""
    entry = {"command": "x", "includeTools": ["read", "find"], "excludeTools": ["find"]}
    done = user.run("add", json.dumps({"mcpServers": {"a": entry}}), "--no-test", "--name", "b")
    assert done.returncode == 0 and "passed over" not in done.stderr, done
    policy = yaml.safe_load(user.user_config.read_text())["policy"]
    assert policy == {"rules": [{"effect": "deny", "tools": ["b.*", "!b.read"]}]}


def test_odd_secrets_are_read_again_as_they_were(user: User) -> None:
    odd = "pa ss'word\"#\\n$HOME"
    snippet = json.dumps(
        {"mcpServers": {"a": {"command": "x", "env": {"TOKEN": odd.replace("$", "$$")}}}}
    )
    assert user.run("add", snippet, "--no-test").returncode == 0
    from mcpx.config import load

    assert load(user.user_config, {}).mcp_servers[0].connection.env == {"TOKEN": odd}  # type: ignore[attr-defined]


def test_a_keyring_that_is_not_there_is_said_and_nothing_is_written(user: User) -> None:
    done = user.run(
        "add", "--secrets", "keyring", "--no-test", "--env", f"API_KEY={SECRET}", "some-program"
    )
    assert done.returncode == 2 and "keyring" in done.stderr and "--secrets env" in done.stderr
    assert not user.user_config.exists()


def test_a_name_that_is_taken_is_said_and_the_same_server_is_not_added_twice(user: User) -> None:
    assert user.run("add", "--name", "a", "--no-test", "one-program").returncode == 0
    again = user.run("add", "--name", "a", "--no-test", "one-program")
    assert again.returncode == 0 and "already" in again.stdout
    other = user.run("add", "--name", "a", "--no-test", "other-program")
    assert other.returncode == 2 and "--replace" in other.stderr
    assert user.run("add", "--name", "a", "--replace", "--no-test", "other-program").returncode == 0
    assert servers(user.user_config)["a"]["connection"]["command"] == "other-program"  # type: ignore[index]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "say what to add"),
        (["hello there my friend"], "not recognised"),
        (["missing.json"], "does not exist"),
        (["missing.mcpb"], "does not exist"),
        (["a | b"], "shell"),
        (['{"mcpServers": {"a": {"command"}}'], "error"),
        (["--name", "mcpx", "program"], "reserved"),
        (["--env", "K", "program"], "KEY=VALUE"),
        (["--header", "K=V", "program"], "--header is for a server with an address"),
        (["https://h/mcp", "https://i/mcp"], "one thing at a time"),
        (["https://h/mcp", "--jsn"], "unknown option --jsn"),
        (["\x1b[31mred\x07 text of evil"], "error"),
    ],
)
def test_mistakes_are_told_and_nothing_is_written(user: User, words: list[str], told: str) -> None:
    done = user.run("add", *words)
    assert done.returncode == 2 and told in done.stderr and "Traceback" not in done.stderr, done
    assert "\x1b" not in done.stderr and not user.user_config.exists()


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["@scope/pkg"], "mcpx add npx -y @scope/pkg"),
        (["@scope/pkg@1.2.0", "--flag"], "mcpx add npx -y @scope/pkg@1.2.0 …"),
        (["127.0.0.1:8377/mcp"], "mcpx add http://127.0.0.1:8377/mcp"),
        (["localhost:8377/mcp"], "mcpx add http://localhost:8377/mcp"),
        (["[::1]:8377/mcp"], "mcpx add 'http://[::1]:8377/mcp'"),
        (["127.0.0.1"], "mcpx add http://127.0.0.1"),
        (["mcp.example.com:8443/mcp"], "mcpx add http://mcp.example.com:8443/mcp"),
    ],
)
def test_what_lacks_its_beginning_is_told_with_the_command_that_was_meant(
    user: User, words: list[str], meant: str
) -> None:
    """RUN-4."""
    ended = user.run("add", "--yes", *words)
    assert ended.returncode == 2 and ended.stderr.endswith(f"did you mean: {meant}\n"), ended.stderr
    assert not user.user_config.exists()


def test_a_failed_trial_prints_the_lines_of_the_server_once(user: User) -> None:
    """RUN-4: though the program is started once for each era."""
    ended = user.run(
        "add", "--yes", "--name", "bad", "sh", "-c", "echo first >&2; echo second >&2; exit 3"
    )
    assert ended.returncode == 1
    assert [line for line in ended.stderr.splitlines() if line.startswith("  | ")] == [
        "  | first",
        "  | second",
    ]


def test_a_config_that_is_broken_is_told_and_stays_as_it_is(user: User) -> None:
    path = user.write_config("mcp_servers: [{name: a, conection: {}}]\n")
    done = user.run("add", "--no-test", "program")
    assert (
        done.returncode == 2
        and "mcpx.yaml:1" in done.stderr
        and path.read_text().endswith("conection: {}}]\n")
    )


def test_arguments_that_are_relative_are_meant_for_this_folder(user: User) -> None:
    """The gateway may be started anywhere."""
    assert user.run("add", "--name", "files", "--no-test", "some-server", ".").returncode == 0
    assert servers(user.user_config)["files"]["connection"]["cwd"] == str(user.folder)  # type: ignore[index]


def test_a_running_gateway_has_taken_it_up_when_the_command_ends() -> None:
    """CFG-5: with the plan; its history has who it was."""
    with Gateway(
        {"mcp_servers": [], "global": {"hot_reload_interval": 600}}, admin=True
    ) as gateway:
        words = ["--config", str(gateway.file)]
        done = run_command(
            ["add", *words, "--name", "shop", sys.executable, SHOP_SERVER],
            gateway.folder,
            gateway.env,
        )
        assert done.returncode == 0, done.stderr
        assert "the running gateway has taken it up: 1 started (shop)" in done.stdout
        told = json.loads(
            run_command(["servers", *words, "--json"], gateway.folder, gateway.env).stdout
        )
        assert told["running"] and [each["name"] for each in told["servers"]] == ["shop"]
        newest = json.loads(
            run_command(["config", "history", *words, "--json"], gateway.folder, gateway.env).stdout
        )
        assert newest["revisions"][0]["author"] == "command line" and newest["revisions"][0]["kept"]
        done = run_command(["remove", *words, "shop"], gateway.folder, gateway.env)
        assert done.returncode == 0 and "1 stopped (shop)" in done.stdout, done


def test_somebody_who_sits_there_is_asked(user: User) -> None:
    """A secret's place, and whether it shall be added."""
    words = ["add", "--env", f"API_KEY={SECRET}", sys.executable, SHOP_SERVER]
    code, shown = user.run_in_terminal(*words, answers={"[E/k/c]": "e", "Add it? [Y/n]": "n"})
    assert (
        code == 1
        and SECRET not in shown
        and not user.user_config.exists()
        and not (user.user_config.parent / ".env").exists()
    )
    code, shown = user.run_in_terminal(*words, answers={"[E/k/c]": "", "Add it? [Y/n]": ""})
    assert (
        code == 0
        and SECRET not in shown
        and SECRET in (user.user_config.parent / ".env").read_text()
    )
    code, shown = user.run_in_terminal(
        "add", "no-such-program", answers={"Add it all the same? [y/N]": ""}
    )
    assert code == 1 and list(servers(user.user_config)) == ["shop"]
