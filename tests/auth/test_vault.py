"""Section 6: what a sign-in leaves behind is for this user alone, and encrypted where there is a
key."""

import base64
import json
import os
import stat
import sys
from pathlib import Path
from types import ModuleType

import pytest

from mcpx.auth import sealing
from mcpx.auth.vault import Vault

CANARY = "canary-5f1d"
TOKENS = {"access_token": CANARY, "nested": {"scope": "a b"}}
KEYED = {"MCPX_KEY": "correct horse battery staple"}


@pytest.fixture(autouse=True)
def quick_and_without_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "SCRYPT", {"n": 2**4, "r": 8, "p": 1})
    monkeypatch.setitem(sys.modules, "keyring", None)


def files(state: Path) -> list[Path]:
    return sorted(file for file in (state / "auth").iterdir() if file.suffix == ".json")


def everything(state: Path) -> bytes:
    return b"".join(file.read_bytes() for file in (state / "auth").iterdir())


def test_what_is_written_is_read_by_the_next_process_and_by_nobody_else(tmp_path: Path) -> None:
    state = tmp_path / "state"
    vault = Vault(state, {})
    assert vault.read("one") is None
    vault.write("one", TOKENS)
    vault.write("two", {})
    assert (vault.read("one"), Vault(state, {}).read("one"), Vault(state, {}).read("two")) == (
        TOKENS,
        TOKENS,
        {},
    )
    assert {stat.S_IMODE(file.stat().st_mode) for file in files(state)} == {0o600}
    assert stat.S_IMODE((state / "auth").stat().st_mode) == 0o700
    assert (
        len(files(state)) == len(list((state / "auth").iterdir())) == 2
    )  # nothing half-written is left


def test_a_file_is_0600_whatever_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Vault(tmp_path / "state", {}).write("one", TOKENS)
    finally:
        os.umask(before)
    assert stat.S_IMODE(files(tmp_path / "state")[0].stat().st_mode) == 0o600


def test_what_was_read_is_the_readers_own(tmp_path: Path) -> None:
    for vault in (Vault(tmp_path, {}), Vault(None, {})):
        vault.write("one", TOKENS)
        taken = vault.read("one")
        assert taken is not None
        taken["nested"]["scope"] = "changed"
        assert vault.read("one") == TOKENS


def test_without_a_folder_it_is_kept_in_memory() -> None:
    vault = Vault(None, KEYED)
    vault.write("one", TOKENS)
    assert vault.read("one") == TOKENS
    vault.delete("one")
    assert (vault.read("one"), vault.sealed_by, vault.kept) == (None, None, False)


def test_with_a_key_nothing_of_it_stands_in_the_file(tmp_path: Path) -> None:
    """Section 6: encrypted when `MCPX_KEY` is there."""
    vault = Vault(tmp_path, KEYED)
    vault.write("https://where.example", TOKENS)
    assert vault.sealed_by == "MCPX_KEY"
    assert Vault(tmp_path, KEYED).read("https://where.example") == TOKENS
    text = everything(tmp_path)
    for word in (CANARY, "access_token", "where.example", KEYED["MCPX_KEY"]):
        assert word.encode() not in text
        assert base64.b64encode(word.encode()).rstrip(b"=") not in text


def test_the_same_written_twice_is_another_text(tmp_path: Path) -> None:
    vault = Vault(tmp_path, KEYED)
    vault.write("one", TOKENS)
    first = json.loads(files(tmp_path)[0].read_bytes())
    vault.write("one", TOKENS)
    second = json.loads(files(tmp_path)[0].read_bytes())
    assert first["nonce"] != second["nonce"] and first["data"] != second["data"]


def test_processes_that_share_a_folder_derive_one_key_between_them(tmp_path: Path) -> None:
    Vault(tmp_path, KEYED).write("one", TOKENS)
    other = Vault(tmp_path, KEYED)
    assert other.read("one") == TOKENS
    other.write("two", TOKENS)
    assert len({json.loads(file.read_bytes())["salt"] for file in files(tmp_path)}) == 1


def test_a_plain_file_is_read_with_a_key_and_encrypted_with_the_next_writing(
    tmp_path: Path,
) -> None:
    Vault(tmp_path, {}).write("one", TOKENS)
    vault = Vault(tmp_path, KEYED)
    assert vault.read("one") == TOKENS
    assert CANARY.encode() in everything(tmp_path)
    vault.write("one", TOKENS)
    assert CANARY.encode() not in everything(tmp_path)
    assert [file.suffix for file in (tmp_path / "auth").iterdir()] == [
        ".json"
    ]  # nothing was set aside


@pytest.mark.parametrize("environ", [{}, {"MCPX_KEY": "another"}], ids=["missing", "wrong"])
def test_without_its_key_a_file_counts_as_absent_is_said_once_and_is_not_lost(
    tmp_path: Path, environ: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    Vault(tmp_path, KEYED).write("one", TOKENS)
    sealed = files(tmp_path)[0].read_bytes()
    vault = Vault(tmp_path, environ)
    assert vault.read("one") is None
    assert vault.read("one") is None
    (said,) = [record.message for record in caplog.records]
    assert "MCPX_KEY" in said and "sign in again" in said
    assert files(tmp_path)[0].read_bytes() == sealed  # reading changes nothing
    vault.write("one", {"access_token": "new"})
    assert vault.read("one") == Vault(tmp_path, environ).read("one") == {"access_token": "new"}
    (aside,) = (tmp_path / "auth").glob("*.unreadable")
    assert aside.read_bytes() == sealed and stat.S_IMODE(aside.stat().st_mode) == 0o600
    assert str(aside) in caplog.records[-1].message


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b'{"sealed":1}', b'{"key":"other","value":{}}', b"\xff"]
)
def test_a_file_that_is_none_of_ours_counts_as_absent(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    for environ in ({}, KEYED):
        vault = Vault(tmp_path, environ)
        vault.write("one", TOKENS)
        files(tmp_path)[0].write_bytes(content)
        assert vault.read("one") is None
        assert "sign in again" in caplog.records[-1].message
        vault.write("one", TOKENS)
        assert vault.read("one") == TOKENS


def test_an_encrypted_file_under_another_name_is_not_taken_for_it(tmp_path: Path) -> None:
    vault = Vault(tmp_path, KEYED)
    vault.write("one", TOKENS)
    first = files(tmp_path)[0]
    vault.write("two", {})
    (second,) = [file for file in files(tmp_path) if file != first]
    second.write_bytes(first.read_bytes())
    assert Vault(tmp_path, KEYED).read("two") is None


def test_what_another_gateway_wrote_or_removed_is_seen(tmp_path: Path) -> None:
    """Two gateways on one state folder: a token that the other one renewed."""
    mine, others = Vault(tmp_path, KEYED), Vault(tmp_path, KEYED)
    mine.write("one", {"n": 1})
    for n in range(2, 6):
        others.write("one", {"n": n})
        assert mine.read("one") == {"n": n}
    others.delete("one")
    assert mine.read("one") is None


def test_what_cannot_be_written_is_kept_in_memory_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "auth").symlink_to(tmp_path)  # a folder that may be anybody's
    vault = Vault(tmp_path, {})
    vault.write("one", TOKENS)
    assert vault.read("one") == TOKENS
    assert "cannot be kept" in caplog.text and CANARY not in caplog.text
    vault.delete("one")
    assert vault.read("one") is None
    assert not list(tmp_path.glob("*.json"))


def test_a_folder_that_others_can_write_to_is_not_read_from(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Vault(tmp_path, {}).write("one", TOKENS)
    (tmp_path / "auth").chmod(0o777)
    assert Vault(tmp_path, {}).read("one") is None
    assert "chmod 700" in caplog.text


class Keyring(ModuleType):
    """A backend in memory, as the package of that name shows it."""

    def __init__(self, priority: float = 5, broken: bool = False) -> None:
        super().__init__("keyring")
        self.priority, self.broken, self.held = priority, broken, dict[tuple[str, str], str]()
        self.__spec__ = __import__("importlib.machinery").machinery.ModuleSpec("keyring", None)

    def get_keyring(self) -> "Keyring":
        return self

    def get_password(self, service: str, name: str) -> str | None:
        if self.broken:
            raise RuntimeError(CANARY)
        return self.held.get((service, name))

    def set_password(self, service: str, name: str, value: str) -> None:
        self.held[service, name] = value


def test_a_keyring_holds_a_key_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 6: encrypted when a keyring is there."""
    keyring = Keyring()
    monkeypatch.setitem(sys.modules, "keyring", keyring)
    vault = Vault(tmp_path, {})
    vault.write("one", TOKENS)
    assert vault.sealed_by == "keyring"
    assert CANARY.encode() not in everything(tmp_path)
    assert [service for service, _ in keyring.held] == ["mcpx"]
    assert Vault(tmp_path, {}).read("one") == TOKENS
    monkeypatch.setitem(sys.modules, "keyring", Keyring())  # another one, with another key
    assert Vault(tmp_path, {}).read("one") is None


@pytest.mark.parametrize(
    "keyring", [Keyring(priority=0), Keyring(broken=True)], ids=["none", "broken"]
)
def test_a_keyring_that_cannot_be_used_is_done_without(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    keyring: Keyring,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setitem(sys.modules, "keyring", keyring)
    vault = Vault(tmp_path, {})
    vault.write("one", TOKENS)
    assert (vault.read("one"), vault.sealed_by) == (TOKENS, None)
    assert CANARY not in caplog.text


def test_no_representation_shows_what_is_kept(tmp_path: Path) -> None:
    vault = Vault(tmp_path, KEYED)
    vault.write("one", TOKENS)
    assert KEYED["MCPX_KEY"] not in repr((vault, vault._secret)) and CANARY not in repr(vault)


def test_what_a_killed_process_left_half_written_goes_with_what_it_was_for(tmp_path: Path) -> None:
    vault = Vault(tmp_path, {})
    vault.write("one", TOKENS)
    (file,) = files(tmp_path)
    old, young = (file.with_name(f".{file.stem}-{end}") for end in ("old", "young"))
    for left in (old, young):
        left.write_text(CANARY)
    os.utime(old, (0, 0))
    vault.write("one", TOKENS)
    assert (old.exists(), young.exists()) == (
        False,
        True,
    )  # another gateway may be at the young one
    file.with_suffix(".unreadable").write_text(CANARY)
    assert vault.delete("one") is None
    assert CANARY.encode() not in everything(tmp_path)


def test_a_key_may_be_any_bytes(tmp_path: Path) -> None:
    keyed = {"MCPX_KEY": os.fsdecode(b"\xff\xfe key")}
    Vault(tmp_path, keyed).write("one", TOKENS)
    assert CANARY.encode() not in everything(tmp_path)
    assert Vault(tmp_path, keyed).read("one") == TOKENS
