"""CFG-9: secrets stay out of the file, or are kept in it encrypted."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from kit.command import run_command, run_process
from kit.process import FIXTURES
from mcpx.auth import keychain, sealing
from mcpx.config import Config

Loaded = Callable[..., Config]
Refused = Callable[..., str]
CANARY = "zq7canary-5d1f"
KEY = sealing.new_key()
ENC = sealing.encrypt(CANARY, {"MCPX_KEY": KEY})
LOOK_UP = keychain.look_up


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What is in the keyring."""
    held: dict[str, str] = {}
    monkeypatch.setattr(keychain, "look_up", held.get)
    return held


def server(value: str, name: str = "a", more: str = "") -> str:
    return (
        f"{{name: {name}, {more} connection: {{type: stdio, command: x, env: {{A_TOKEN: "
        f"'{value}'}}}}}}"
    )


def servers(*entries: str) -> str:
    return f"mcp_servers: [{', '.join(entries)}]"


def env_of(config: Config) -> Mapping[str, str]:
    return config.mcp_servers[0].connection.env  # type: ignore[union-attr]


def test_a_reference_is_looked_up_in_the_keyring(loaded: Loaded, kept: dict[str, str]) -> None:
    kept["github"] = CANARY
    config = loaded(servers(server("Bearer ${keyring:github}")))
    assert env_of(config) == {"A_TOKEN": f"Bearer {CANARY}"}
    assert CANARY in config.secrets and CANARY not in repr(config)


def test_what_the_keyring_holds_is_not_looked_into_again(
    loaded: Loaded, kept: dict[str, str]
) -> None:
    kept["github"] = "${HOME} enc:v1:x"
    assert env_of(loaded(servers(server("${keyring:github}")))) == {"A_TOKEN": "${HOME} enc:v1:x"}


def test_a_secret_that_is_not_there_switches_off_its_server_and_says_how_to_set_it(
    loaded: Loaded,
) -> None:
    """CFG-3."""
    config = loaded(servers(server("${keyring:nope}"), server("fine", "b")))
    assert [entry.enabled for entry in config.mcp_servers] == [False, True]
    told = "\n".join(config.warnings)
    assert "'nope'" in told and "config.yaml:1:" in told and "mcpx secret set nope" in told


def test_elsewhere_and_when_strict_it_is_an_error(refused: Refused) -> None:
    auth = "auth_configs: [{name: a, type: bearer_token, bearer_token: {token: '${keyring:nope}'}}]"
    for told in (refused(auth), refused(servers(server("${keyring:nope}")), strict=True)):
        assert "the keyring has no secret 'nope'" in told and "config.yaml:1:" in told


def test_without_a_keyring_the_message_says_so(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        keychain, "look_up", LOOK_UP
    )  # not `undo`, which would take the test out of its folder
    monkeypatch.setitem(sys.modules, "keyring", None)
    config = loaded(servers(server("${keyring:github}")))
    assert "'keyring' is not installed" in (config.mcp_servers[0].switched_off or "")


def test_a_keyring_that_does_not_answer_is_asked_once(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def look_up(name: str) -> str | None:
        asked.append(name)
        raise keychain.NoKeyring("the keyring does not answer", slow=True)

    monkeypatch.setattr(keychain, "look_up", look_up)
    loaded(
        servers(
            server("${keyring:one}"), server("${keyring:two}", "b"), server("${keyring:three}", "c")
        )
    )
    assert asked == ["one"]


def test_nothing_of_a_disabled_server_is_looked_up(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CFG-3."""
    monkeypatch.setattr(keychain, "look_up", lambda name: pytest.fail("looked up"))
    config = loaded(
        servers(
            server("${keyring:one}", more="enabled: false,"), server(ENC, "b", "enabled: false,")
        )
    )
    assert not config.warnings


@pytest.mark.parametrize("name", ["vault", ".names", "a b", ""])
def test_our_own_entries_and_odd_names_cannot_be_referred_to(name: str, refused: Refused) -> None:
    assert "is no name of a secret" in refused(servers(server(f"${{keyring:{name}}}")))


# --- encrypted values


def test_an_encrypted_value_is_opened_by_its_key(loaded: Loaded) -> None:
    config = loaded(servers(server(ENC)), MCPX_KEY=KEY)
    assert env_of(config) == {"A_TOKEN": CANARY}
    assert CANARY in config.secrets and CANARY not in repr(config)


def test_an_encrypted_value_may_stand_where_a_number_is_wanted(loaded: Loaded) -> None:
    port = sealing.encrypt("8123", {"MCPX_KEY": KEY})
    assert loaded(f"server: {{port: '{port}'}}", MCPX_KEY=KEY).server.port == 8123


def test_a_passphrase_is_a_key_too(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "SCRYPT", {"n": 2**4, "r": 8, "p": 1})
    text = sealing.encrypt(CANARY, {"MCPX_KEY": "correct horse"})
    assert env_of(loaded(servers(server(text)), MCPX_KEY="correct horse")) == {"A_TOKEN": CANARY}


def test_without_its_key_only_that_server_is_off(loaded: Loaded, refused: Refused) -> None:
    """CFG-3."""
    config = loaded(servers(server(ENC), server("fine", "b")))
    assert [entry.enabled for entry in config.mcp_servers] == [False, True]
    assert "MCPX_KEY is not set (config.yaml:1:" in (config.mcp_servers[0].switched_off or "")
    assert "MCPX_KEY is not set" in refused(servers(server(ENC)), strict=True)


@pytest.mark.parametrize(
    "text",
    [
        ENC[:-4],
        ENC[:40],
        "enc:v1:",
        "enc:v1:%%%",
        ENC[:-6] + "AAAAAA",
        "enc:v9:" + ENC[7:],
        "enc:v1:" + "A" * 2000,
    ],
    ids=["cut", "short", "empty", "no-base64", "changed", "version", "long"],
)
def test_a_damaged_value_is_an_error_with_its_place_and_without_the_value(
    text: str, refused: Refused
) -> None:
    told = refused(servers(server(text)), MCPX_KEY=KEY)
    assert "encrypted value" in told and "config.yaml:1:" in told and "mcpx secret encrypt" in told
    assert text[7:] not in told or not text[7:]


def test_a_wrong_key_is_an_error_that_shows_neither_value_nor_key(refused: Refused) -> None:
    other = sealing.new_key()
    told = refused(
        f"auth_configs: [{{name: a, type: bearer_token, bearer_token: {{token: '{ENC}'}}}}]",
        MCPX_KEY=other,
    )
    assert "made with another MCPX_KEY" in told and "config.yaml:1:" in told
    assert not any(secret in told for secret in (ENC[7:], KEY, other, CANARY))


def test_text_that_only_begins_like_it_is_text(loaded: Loaded) -> None:
    for text in ("enc:", "enc:vx:", "encoded", "see enc:v1:abc"):
        assert env_of(loaded(servers(server(text)))) == {"A_TOKEN": text}


def test_an_encrypted_value_is_no_literal_secret(loaded: Loaded, folder: Path) -> None:
    """CFG-9: a wider mode is warned about when the file holds a literal secret, and only then."""
    from mcpx.config import load

    for value, warned in ((ENC, False), ("plain-literal", True), ("${keyring:a}", False)):
        loaded(servers(server(value)), MCPX_KEY=KEY)
        (folder / "config.yaml").chmod(0o644)
        told = "\n".join(load(folder / "config.yaml", {"MCPX_KEY": KEY}).warnings)
        assert ("others may read it" in told) is warned


# --- what is known to be secret


@pytest.mark.parametrize(
    "text",
    [
        f"server: {{auth: {{tokens: [{{name: a, token: {CANARY}}}]}}}}",
        f"server: {{admin_token: {CANARY}}}",
        f"server: {{store: 'redis://user:{CANARY}@host/0'}}",
        f"auth_configs: [{{name: a, type: bearer_token, bearer_token: {{token: {CANARY}}}}}]",
        f"auth_configs: [{{name: a, type: basic_auth, basic_auth: {{username: u, password: "
        f"{CANARY}}}}}]",
        f"auth_configs: [{{name: a, type: api_key, api_key: {{name: k, value: {CANARY}}}}}]",
        f"auth_configs: [{{name: a, type: custom_header, custom_header: {{headers: {{X-Any: "
        f"{CANARY}}}}}}}]",
        f"auth_configs: [{{name: a, type: oauth, oauth: {{client_id: i, client_secret: "
        f"{CANARY}}}}}]",
        f"mcp_servers: [{{name: a, connection: {{type: stdio, command: x, env: {{DB_PASSWORD: "
        f"{CANARY}}}}}}}]",
        f"mcp_servers: [{{name: a, connection: {{type: stdio, command: x, args: [--api-key, "
        f"{CANARY}]}}}}]",
        f"mcp_servers: [{{name: a, connection: {{type: stdio, command: x, args: "
        f"['--token={CANARY}']}}}}]",
        f"mcp_servers: [{{name: a, connection: {{type: http, url: 'http://h', headers: "
        f"{{X-Api-Key: {CANARY}}}}}}}]",
        f"mcp_servers: [{{name: a, connection: {{type: http, url: 'http://h/?token={CANARY}'}}}}]",
        "mcp_servers: [{name: a, connection: {type: http, url: 'http://h', headers: {X-Any: "
        "'${ANY}'}}}]",
        "mcp_servers: [{name: a, connection: {type: stdio, command: x, args: ['${A_TOKEN}']}}]",
        "mcp_servers: [{name: a, connection: {type: stdio, command: x, args: ['${file:held}']}}]",
        f"global: {{traces: {{endpoint: 'http://h:4318', headers: {{api-key: {CANARY}}}}}}}",
    ],
)
def test_a_secret_is_known_by_where_it_stands(text: str, loaded: Loaded, folder: Path) -> None:
    (folder / "held").write_text(CANARY + "\n")
    config = loaded(text, ANY=CANARY, A_TOKEN=CANARY)
    assert any(CANARY in secret for secret in config.secrets)


def test_what_is_no_secret_is_not_known_as_one(loaded: Loaded) -> None:
    config = loaded(
        "mcp_servers: [{name: a, description: '${ABOUT}', connection: {type: stdio, command: "
        "'${HOME}/x', "
        "args: ['--level', warning-level], env: {HOME: '${HOME}', AUTHOR: somebody}}}]",
        HOME="/home/somebody",
        ABOUT="a long description",
    )
    assert not config.secrets


# --- mcpx secret


def mcpx(
    folder: Path, *words: str, given: str = "", ring: bool = False, **environ: str
) -> tuple[int, str, str]:
    more = (
        {"PYTHONPATH": str(FIXTURES / "rings"), "KEYRING_FILE": str(folder / "ring.json")}
        if ring
        else {}
    )
    run = run_process if ring else run_command
    done = run(
        words,
        folder,
        {**os.environ, "MCPX_STATE_DIR": str(folder / "state"), **more, **environ},
        given,
    )
    return done.returncode, done.stdout, done.stderr


def test_what_is_encrypted_on_the_command_line_is_read_from_the_file(tmp_path: Path) -> None:
    """CFG-9, through the program."""
    code, key, _ = mcpx(tmp_path, "secret", "key")
    assert code == 0
    code, value, said = mcpx(
        tmp_path, "secret", "encrypt", given=CANARY + "\n", MCPX_KEY=key.strip()
    )
    assert (code, said) == (0, "") and value.startswith("enc:v1:") and CANARY not in value
    file = tmp_path / "config.yaml"
    file.write_text(servers(server(value.strip())))
    file.chmod(0o600)
    assert mcpx(tmp_path, "check", str(file), MCPX_KEY=key.strip())[0] == 0
    code, out, said = mcpx(tmp_path, "check", str(file), MCPX_KEY="another key")
    assert (
        code == 2
        and "another MCPX_KEY" in said
        and CANARY not in out + said
        and value.strip() not in said
    )


def test_a_secret_in_the_keyring_is_set_listed_used_and_removed(tmp_path: Path) -> None:
    """CFG-9, through the program."""
    file = tmp_path / "config.yaml"
    file.write_text(servers(server("${keyring:git/hub}")))
    file.chmod(0o600)
    code, _, said = mcpx(tmp_path, "check", str(file), ring=True)
    assert code == 0 and "mcpx secret set git/hub" in said
    assert mcpx(tmp_path, "secret", "set", "git/hub", given=CANARY, ring=True)[0] == 0
    assert mcpx(tmp_path, "secret", "list", ring=True)[1] == "git/hub\n"
    assert json.loads(mcpx(tmp_path, "secret", "list", "--json", ring=True)[1]) == {
        "secrets": ["git/hub"]
    }
    code, out, said = mcpx(tmp_path, "check", str(file), ring=True)
    assert code == 0 and CANARY not in out + said
    assert mcpx(tmp_path, "secret", "remove", "git/hub", ring=True)[0] == 0
    assert mcpx(tmp_path, "secret", "list", ring=True)[1] == ""
    assert mcpx(tmp_path, "secret", "remove", "git/hub", ring=True)[0] == 1


def test_without_a_key_values_are_encrypted_by_one_in_the_keyring(tmp_path: Path) -> None:
    code, value, _ = mcpx(tmp_path, "secret", "encrypt", given=CANARY, ring=True, MCPX_KEY="")
    assert code == 0
    file = tmp_path / "config.yaml"
    file.write_text(servers(server(value.strip())))
    file.chmod(0o600)
    assert mcpx(tmp_path, "check", str(file), ring=True, MCPX_KEY="set now")[0] == 0


@pytest.mark.parametrize(
    "words", [("set",), ("encrypt", CANARY), ("set", "vault"), ("nonsense",), ("remove", "a b")]
)
def test_a_mistake_on_the_command_line_is_told_and_never_repeats_a_secret(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    code, out, said = mcpx(tmp_path, "secret", *words, given=CANARY)
    assert code == 2 and "error" in said and "Traceback" not in said and CANARY not in out + said


def test_nothing_to_encrypt_with_is_told(tmp_path: Path) -> None:
    code, _, said = mcpx(tmp_path, "secret", "encrypt", given=CANARY, MCPX_KEY="")
    assert code == 1 and "mcpx secret key" in said and CANARY not in said
