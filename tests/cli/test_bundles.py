"""`mcpx add FILE.mcpb`: a server in a zip file, unpacked and started; hostile ones are not."""

import io
import json
import stat
import struct
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from kit.http_api import ApiResponse, HttpApi
from kit.servers import SHOP_SERVER
from kit.user import User
from mcpx.imports import bundle
from mcpx.imports.bundle import launch_of, read_bundle, unpack
from mcpx.imports.launch import answers
from mcpx.model.errors import ConfigError

SECRET = "very-secret-value-1234567"


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


def manifest(**more: Any) -> dict[str, Any]:
    args = ["${__dirname}/server/main.py"]
    server = {
        "type": "python",
        "entry_point": "server/main.py",
        "mcp_config": {"command": sys.executable, "args": args},
    }
    return {
        "manifest_version": "0.3",
        "name": "shop",
        "version": "1.2.0",
        "author": {"name": "A"},
        "server": server,
        **more,
    }


def packed(path: Path, told: dict[str, Any] | None = None, **files: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", json.dumps(manifest() if told is None else told))
        archive.write(SHOP_SERVER, "server/main.py")
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def entry(path: Path) -> dict[str, Any]:
    found: list[dict[str, Any]] = yaml.safe_load(path.read_text())["mcp_servers"]
    return found[0]


def test_a_bundle_is_unpacked_tried_added_and_taken_away_again(user: User) -> None:
    packed(user.folder / "shop.mcpb")
    done = user.run("add", "shop.mcpb")
    assert done.returncode == 0, done.stderr
    assert "An MCP bundle: shop 1.2.0 by A" in done.stdout and "6 tools" in done.stdout
    made = entry(user.user_config)
    folder = Path(made["connection"]["args"][0]).parents[1]
    assert folder.parent == user.state / "bundles" and (folder / "manifest.json").is_file()
    assert made["trust"] == "pin" and stat.S_IMODE(folder.stat().st_mode) == 0o700
    done = user.run("remove", "shop")
    assert (
        done.returncode == 0
        and f"--purge removes them): {folder}" in done.stdout
        and folder.exists()
    )
    assert user.run("config", "rollback", "1").returncode == 0
    done = user.run("remove", "shop", "--purge")
    assert done.returncode == 0 and "its files are gone" in done.stdout and not folder.exists()


def test_the_name_of_a_bundle_refers_to_nothing(user: User) -> None:
    done = user.run(
        "add", str(packed(user.folder / "a.mcpb", manifest(name="shop${HOME}"))), "--yes"
    )
    assert done.returncode == 0, done.stderr
    assert entry(user.user_config)["name"] == "shop{HOME}"


def test_of_a_bundle_that_does_not_work_nothing_is_left(user: User) -> None:
    told = manifest()
    told["server"]["mcp_config"]["args"] = ["-c", "raise SystemExit('broken')"]
    packed(user.folder / "shop.mcpb", told)
    done = user.run("add", "shop.mcpb")
    assert done.returncode == 1 and "broken" in done.stderr and not user.user_config.exists()
    assert list((user.state / "bundles").iterdir()) == []
    assert user.run("add", "shop.mcpb", "--dry-run").returncode == 0
    assert list((user.state / "bundles").iterdir()) == []


def settings_manifest() -> dict[str, Any]:
    told = manifest(
        user_config={
            "api_key": {"type": "string", "title": "Key", "sensitive": True, "required": True},
            "folders": {"type": "directory", "multiple": True, "required": True},
            "level": {"type": "number", "default": 2},
            "loud": {"type": "boolean", "default": False},
            "unsaid": {"type": "string"},
        }
    )
    told["server"]["mcp_config"] = {
        "command": sys.executable,
        "args": [
            "${__dirname}/server/main.py",
            "${user_config.folders}",
            "--l=${user_config.level}",
            "$HOME ${other}",
        ],
        "env": {
            "KEY": "${user_config.api_key}",
            "H": "${HOME}${/}x",
            "U": "${user_config.unsaid}",
            "L": "${user_config.loud}",
        },
        "platform_overrides": {
            sys.platform: {"env": {"ON": sys.platform, "KEY": "${user_config.api_key}"}},
            "x": {},
        },
    }
    return told


def test_settings_are_asked_for_or_given_and_secrets_stay_out_of_the_file(user: User) -> None:
    packed(user.folder / "shop.mcpb", settings_manifest())
    done = user.run("add", "shop.mcpb", "--no-test")
    assert (
        done.returncode == 2
        and "--set 'api_key=${VARIABLE}'" in done.stderr
        and "--set folders=VALUE" in done.stderr
    )
    words = [
        "--set",
        "folders=/a",
        "--set",
        "folders=/b b",
        "--set",
        f"api_key={SECRET}",
        "--no-test",
    ]
    assert "true or false" in user.run("add", "shop.mcpb", *words, "--set", "loud=maybe").stderr
    assert "there is api_key" in user.run("add", "shop.mcpb", *words, "--set", "typo=1").stderr
    done = user.run("add", "shop.mcpb", *words)
    assert (
        done.returncode == 0
        and SECRET not in done.stdout + done.stderr + user.user_config.read_text()
    ), done
    connection = entry(user.user_config)["connection"]
    assert connection["args"][1:] == ["/a", "/b b", "--l=2", "$$HOME $${other}"]
    assert connection["env"] == {"ON": sys.platform, "KEY": "${SHOP_API_KEY}"}
    assert f"SHOP_API_KEY={SECRET}" in (user.user_config.parent / ".env").read_text()
    assert "means nothing here" in done.stderr


def test_somebody_is_asked_for_settings_unseen_where_they_are_secret(user: User) -> None:
    packed(user.folder / "shop.mcpb", settings_manifest())
    says = {
        "api_key (Key): ": SECRET,
        "folders: ": "5",
        "[E/k/c]": "",
        "once to see? [Y/n]": "n",
        "without trying it?": "y",
    }
    code, shown = user.run_in_terminal("add", "shop.mcpb", answers={**says, "Add it? [Y/n]": ""})
    assert code == 0 and SECRET not in shown, shown
    assert SECRET in (user.user_config.parent / ".env").read_text()


@pytest.mark.parametrize(
    ("kind", "command", "args"),
    [
        ("node", "node", ["F/a.js"]),
        ("python", "python3", ["F/a.js"]),
        ("binary", "F/a.js", None),
        ("uv", "uv", ["run", "--directory", "F", "F/a.js"]),
    ],
)
def test_each_type_has_its_usual_start(
    tmp_path: Path, kind: str, command: str, args: list[str] | None
) -> None:
    path = packed(
        tmp_path / "a.mcpb",
        manifest(server={"type": kind, "entry_point": "a.js"}),
        **{"a.js": b"x"},
    )
    found = read_bundle(path)
    launch = launch_of(found, Path("F"), {"PATH": "/nonexistent"})
    made = launch.entry(answers(launch.inputs, {}, "a"))
    assert made["connection"]["command"] == command and made["connection"].get("args") == args
    assert unpack(found, tmp_path / "F") and not unpack(found, tmp_path / "F")
    assert bool((tmp_path / "F" / "a.js").stat().st_mode & 0o100) is (kind == "binary")


# Attacks
# --------------------------------------------------------------------------------------------------


def zipped(*members: tuple[zipfile.ZipInfo | str, bytes]) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", json.dumps(manifest()))
        for name, data in members:
            archive.writestr(name, data)
    return held.getvalue()


def link(name: str, to: str) -> tuple[zipfile.ZipInfo, bytes]:
    info = zipfile.ZipInfo(name)
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info, to.encode()


HOSTILE: dict[str, tuple[bytes, str]] = {
    "above": (zipped(("../evil.txt", b"x")), "outside"),
    "deep above": (zipped(("a/../../evil.txt", b"x")), "outside"),
    "absolute": (zipped(("/tmp/evil-mcpx.txt", b"x")), "outside"),
    "windows": (zipped(("..\\evil.txt", b"x")), "not every system"),
    "drive": (zipped(("C:evil.txt", b"x")), "not every system"),
    "a link": (zipped(link("a", "/etc/passwd")), "a link"),
    "a link to write through": (zipped(link("a", ".."), ("a/evil.txt", b"x")), "a link"),
    "twice": (zipped(("A.txt", b"x"), ("a.txt", b"y")), "twice"),
    "a bomb": (zipped(("zeros", b"\0" * (200 * 2**20))), "more than a bundle may be"),
    "escapes": (zipped(("\x1b[31mred", b"x")), "not every system"),
    "no zip": (b"hello", "not a zip"),
    "empty": (b"", "not a zip"),
    "cut": (zipped(("b", b"x" * 5000))[:200], "not a zip"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_bundle_is_refused_before_anything_is_unpacked(user: User, name: str) -> None:
    data, told = HOSTILE[name]
    (user.folder / "bad.mcpb").write_bytes(data)
    done = user.run("add", "bad.mcpb", "--yes")
    assert done.returncode == 2 and told in done.stderr and "Traceback" not in done.stderr, done
    assert (
        "\x1b" not in done.stderr
        and not user.user_config.exists()
        and not (user.state / "bundles").exists()
    )
    assert list(user.folder.parent.rglob("*evil*")) == []


def test_a_file_that_is_larger_than_it_says_is_not_unpacked(tmp_path: Path) -> None:
    path = packed(tmp_path / "a.mcpb", big=b"a" * 100_000)
    data = bytearray(path.read_bytes())
    at = data.rindex(b"PK\x01\x02", 0, data.rindex(b"big"))
    data[at + 24 : at + 28] = struct.pack("<I", 10)  # the size in the list of what is inside
    path.write_bytes(data)
    with pytest.raises(ConfigError, match="damaged"):
        unpack(read_bundle(path), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("told", "problem"),
    [
        ({"name": "a"}, "server.type is none"),
        ({"name": "a", "server": {"type": "shell"}}, "server.type is 'shell'"),
        ({"server": {"type": "node"}}, "has no name"),
        ({"name": "a", "server": {"type": "node"}}, "neither mcp_config nor"),
        ([], "has no name"),
    ],
)
def test_a_manifest_that_says_too_little_is_told(user: User, told: Any, problem: str) -> None:
    packed(user.folder / "a.mcpb", told)
    done = user.run("add", "a.mcpb")
    assert done.returncode == 2 and problem in done.stderr, done


def test_a_manifest_steers_neither_terminal_nor_references(user: User) -> None:
    evil = "\x1b]0;owned\x07${HOME}\u202e"
    packed(
        user.folder / "a.mcpb", manifest(display_name=evil, description=evil, author={"name": evil})
    )
    done = user.run("add", "a.mcpb", "--no-test")
    assert done.returncode == 0 and all(
        c.isprintable() or c == "\n" for c in done.stdout + done.stderr
    ), done
    assert entry(user.user_config)["description"] == "]0;owned$${HOME}"


def test_a_bundle_from_an_address_is_fetched_and_not_from_a_private_one(user: User) -> None:
    data = packed(user.folder / "a.mcpb").read_bytes()
    with HttpApi() as api:
        api.on("GET", "/a.mcpb", lambda _: ApiResponse(data))
        done = user.run("add", f"{api.url}/a.mcpb")
        assert done.returncode == 2 and "--allow-private" in done.stderr and api.seen == []
        done = user.run("add", f"{api.url}/a.mcpb", "--allow-private")
        assert done.returncode == 0 and "6 tools" in done.stdout, done


def test_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = packed(tmp_path / "a.mcpb")
    monkeypatch.setattr(bundle, "MAX_PACKED", 10)
    with pytest.raises(ConfigError, match="larger than"):
        read_bundle(path)
    monkeypatch.setattr(bundle, "MAX_PACKED", 2**20)
    monkeypatch.setattr(bundle, "MAX_FILES", 1)
    with pytest.raises(ConfigError, match="more than 1 files"):
        read_bundle(path)
    with pytest.raises(ConfigError, match="sha256"):
        read_bundle(path, "0" * 64)
