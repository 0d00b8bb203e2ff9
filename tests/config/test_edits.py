"""CFG-6, ADM-2: changes of entries and sections, in every shape of file, in the file where they
stand."""

import copy
import os
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from kit.masks import plain_masks
from mcpx.config import Config, load
from mcpx.config.editing import edited
from mcpx.config.edits import (
    Convert,
    Edit,
    EditError,
    NewText,
    OrderEntries,
    PutEntry,
    RemoveEntry,
    SetFields,
    SetSection,
    Where,
)
from mcpx.config.masking import MASK
from mcpx.config.written import EntrySection, Written, read_written

FILES = Path(__file__).parent / "files"
EXAMPLES = Path(__file__).parents[2] / "examples"
NATIVE = """\
# mine
mcp_servers:
  # files
  - name: files
    connection:
      type: stdio
      command: npx   # node
      env: {TOKEN: geheim-1234, PORT: 8080}
  - name: web
    enabled: false   # for now
    connection: {type: http, url: "https://u:pass-word@h/x"}

auth_configs:
  - name: key
    type: bearer_token
    bearer_token: {token: "tok-en-99"}   # secret
"""


X, Y = (f"  - name: {name}\n    connection: {{type: stdio, command: cat}}\n" for name in "xy")
COMMAND = "commands:\n  - name: c\n    type: http\n    http: {url: 'http://h'}\n"
ROUND_TRIPS = (
    f"mcp_servers:\n{X}\n{Y}\nglobal:\n  log_level: INFO\n",
    f"mcp_servers:\n{X}\n{Y}\n\nglobal:\n  log_level: INFO\n",
    f"mcp_servers:\n{X}\n{Y}# end\n",
    f"mcp_servers:\n{X}\n  # about y\n{Y}",
    f"mcp_servers:\n{X}\n\n{Y}",
    f"mcp_servers:\n{X}\n{Y}\n\n",
    f"mcp_servers:\n{X}\n{Y}{COMMAND}",
    f"mcp_servers:\n{X}\n  # - name: z\n\nglobal: {{}}\n",
    f"mcp_servers:\n{X}{Y}",
    "mcp_servers: []\n",
    "mcp_servers: []  # none\n\nglobal: {}\n",
    COMMAND,
    "mode: direct\n",
    "mode: direct\n\n\nglobal:\n  log_level: INFO\n",
)
"""Files that an entry is added to and removed from."""


class EditedConfig:
    """A configuration in a folder, edited on disk."""

    def __init__(self, path: Path, env: str | None = None) -> None:
        self.where = Where(Path(os.path.abspath(path)), {}, env)

    def look(self) -> Written:
        return read_written(self.where)

    def edit(self, change: Edit | Sequence[Edit]) -> dict[str, str]:
        texts = edited(self.look(), change, lambda texts: read_written(self.where, texts))
        for path, text in texts.items():
            path.write_text(text, newline="")
        return {path.name: text for path, text in texts.items()}

    def load(self) -> Config:
        return load(self.where.path, {}, self.where.env)

    def value(self, section: EntrySection, name: str) -> Any:
        entry = self.look().entry(section, name)
        return None if entry is None else entry.value


def edited_config(tmp_path: Path, text: str, name: str = "mcpx.yaml", **more: str) -> EditedConfig:
    for file, said in {
        name: text,
        **{key.replace("_", "."): value for key, value in more.items()},
    }.items():
        (tmp_path / file).write_text(dedent(said))
        (tmp_path / file).chmod(0o600)
    return EditedConfig(tmp_path / name)


@pytest.mark.parametrize("text", ROUND_TRIPS)
def test_an_entry_that_is_added_and_removed_leaves_no_trace(text: str, tmp_path: Path) -> None:
    """CFG-6: no empty line, and no empty section."""
    (tmp_path / "mcpx.yaml").write_text(text)
    config = EditedConfig(tmp_path / "mcpx.yaml")
    config.edit(
        [PutEntry("mcp_servers", "new", {"connection": {"type": "stdio", "command": "cat"}})]
    )
    assert "name: new" in (tmp_path / "mcpx.yaml").read_text()
    config.edit([RemoveEntry("mcp_servers", "new")])
    assert (tmp_path / "mcpx.yaml").read_text() == text


def test_an_entry_is_told_as_it_is_written_with_its_place_and_without_its_secrets(
    tmp_path: Path,
) -> None:
    """ADM-2: references stay, secrets are masked, what is text is text."""
    written = edited_config(tmp_path, NATIVE).look()
    files = written.entry("mcp_servers", "files")
    assert files is not None and (files.file, files.line) == (tmp_path / "mcpx.yaml", 4)
    assert plain_masks(files.value["connection"]["env"]) == {"TOKEN": MASK, "PORT": "8080"}
    web = written.entry("mcp_servers", "web")
    assert (
        web is not None and plain_masks(web.value["connection"]["url"]) == f"https://u:{MASK}@h/x"
    )
    assert (
        "geheim" not in written.text()
        and "tok-en" not in written.text()
        and "pass-word" not in written.text()
    )
    assert written.text().count(MASK) == 3 and "# for now" in written.text()


def test_saving_what_was_told_changes_nothing(tmp_path: Path) -> None:
    """ADM-2: a masked secret keeps the stored value."""
    it = edited_config(tmp_path, NATIVE)
    for section, name in (
        ("mcp_servers", "files"),
        ("mcp_servers", "web"),
        ("auth_configs", "key"),
    ):
        assert set(it.edit(PutEntry(section, name, it.value(section, name))).values()) <= {NATIVE}  # type: ignore[arg-type]
    assert it.edit(NewText(it.look().text())) == {"mcpx.yaml": NATIVE}


def test_a_masked_text_that_was_edited_keeps_its_secrets(tmp_path: Path) -> None:
    it = edited_config(tmp_path, NATIVE)
    text = (
        it.look()
        .text()
        .replace("name: files", "name: documents")
        .replace("enabled: false", "enabled: true")
    )
    new = it.edit(NewText(text))["mcpx.yaml"]
    assert new == NATIVE.replace("name: files", "name: documents").replace(
        "enabled: false", "enabled: true"
    )


COMMENTED = """\
# token: sk-old-1234567890abcdef, from last year
mcp_servers:
  # The team's own. - env: {API_KEY: "one-1", LOG: info}
  - name: web
    connection: {type: stdio, command: x, env: {API_KEY: two-2}}
    # headers: {Authorization: Bearer three-3}
    # password: four-4
#    password: ${PASSWORD}
"""


def test_what_is_commented_out_is_as_secret_as_it_was_and_is_kept(tmp_path: Path) -> None:
    """ADM-2: secrets in comments are shown to nobody; saving the text keeps them, wherever they are
    moved to."""
    it = edited_config(tmp_path, COMMENTED)
    shown = it.look().text()
    assert [
        each for each in ("1234567890", "one-1", "two-2", "three-3", "four-4") if each in shown
    ] == []
    assert (
        "from last year" in shown and "LOG: info" in shown and "#    password: ${PASSWORD}" in shown
    )
    assert it.edit(NewText(shown)) == {"mcpx.yaml": COMMENTED}
    assert it.edit(NewText(shown.replace("name: web", "name: net"))) == {
        "mcpx.yaml": COMMENTED.replace("name: web", "name: net")
    }
    it = edited_config(tmp_path, COMMENTED)
    first, _, rest = shown.partition("\n")
    moved = COMMENTED.partition("\n")
    assert it.edit(NewText(f"{rest}  {first}\n")) == {"mcpx.yaml": f"{moved[2]}  {moved[0]}\n"}
    without = "".join(line for line in shown.splitlines(True) if "password" not in line)
    kept = "".join(line for line in COMMENTED.splitlines(True) if "password" not in line)
    assert it.edit(NewText(without)) == {"mcpx.yaml": kept}


def test_masks_in_comments_find_their_secrets_by_name(tmp_path: Path) -> None:
    text = "# token: abc-1\n# token: abc-2\nmcp_servers: []\n"
    it = edited_config(tmp_path, text)
    shown = it.look().text()
    assert it.edit(NewText(shown.replace("[]", "[ ]"))) == {"mcpx.yaml": text.replace("[]", "[ ]")}
    second = shown.partition("\n")[2]
    for wrong in (f"# password: {MASK}\n", second.replace("token", "cheese")):
        with pytest.raises(EditError, match="could stand for in this comment") as caught:
            it.edit(NewText(f"{wrong}\nmcp_servers: []\n"))
        assert caught.value.code == "invalid"
    assert it.edit(NewText(second)) == {"mcpx.yaml": "# token: abc-2\nmcp_servers: []\n"}


def test_a_mask_for_which_nothing_is_stored_is_a_mistake_with_its_path(tmp_path: Path) -> None:
    it = edited_config(tmp_path, NATIVE)
    entry = {"name": "new", "connection": {"type": "stdio", "command": "x", "env": {"KEY": MASK}}}
    with pytest.raises(EditError) as caught:
        it.edit(PutEntry("mcp_servers", "new", entry))
    assert (caught.value.code, caught.value.path) == (
        "invalid",
        "mcp_servers[0].connection.env.KEY",
    )
    with pytest.raises(EditError, match="could stand for"):
        it.edit(SetFields("mcp_servers", "files", {"description": MASK}))


def test_an_entry_comes_changes_its_name_and_goes(tmp_path: Path) -> None:
    """CFG-6: what is not concerned stays byte for byte."""
    it = edited_config(tmp_path, NATIVE)
    new = it.edit(
        PutEntry("mcp_servers", "x", {"connection": {"type": "stdio", "command": "y"}}, create=True)
    )
    added = "  - name: x\n    connection:\n      type: stdio\n      command: y\n"
    assert new["mcpx.yaml"] == NATIVE.replace("\nauth_configs", f"{added}\nauth_configs")
    renamed = it.edit(PutEntry("mcp_servers", "x", {**it.value("mcp_servers", "x"), "name": "z"}))
    assert renamed["mcpx.yaml"] == new["mcpx.yaml"].replace("- name: x", "- name: z")
    assert it.edit(RemoveEntry("mcp_servers", "z")) == {"mcpx.yaml": NATIVE}


def test_single_fields_are_set_and_taken_out(tmp_path: Path) -> None:
    it = edited_config(tmp_path, NATIVE)
    new = it.edit(SetFields("mcp_servers", "web", {"enabled": True, "connection.headers.X": "1"}))[
        "mcpx.yaml"
    ]
    assert "enabled: true   # for now" in new and "headers: {X: '1'}}" in new
    assert it.edit(
        SetFields("mcp_servers", "web", {"enabled": False, "connection.headers": None})
    ) == {"mcpx.yaml": NATIVE}


def test_what_is_not_there_and_what_is_there_already_is_said(tmp_path: Path) -> None:
    it = edited_config(tmp_path, NATIVE)
    refusals: list[tuple[Edit, str]] = [
        (RemoveEntry("mcp_servers", "nope"), "not_found"),
        (SetFields("commands", "nope", {"enabled": True}), "not_found"),
        (PutEntry("mcp_servers", "nope", {}, create=False), "not_found"),
        (PutEntry("mcp_servers", "web", {}, create=True), "exists"),
        (
            PutEntry("mcp_servers", "web", {**it.value("mcp_servers", "web"), "name": "files"}),
            "exists",
        ),
        (PutEntry("mcp_servers", "web", {"name": 3}), "invalid"),
        (OrderEntries("mcp_servers", ["web"]), "invalid"),
        (NewText("a: 1", Path("/elsewhere.yaml")), "not_found"),
        (Convert(), "not_possible"),
    ]
    for change, code in refusals:
        with pytest.raises(EditError) as caught:
            it.edit(change)
        assert caught.value.code == code, change
    assert (tmp_path / "mcpx.yaml").read_text() == NATIVE


def test_entries_are_put_in_another_order(tmp_path: Path) -> None:
    it = edited_config(tmp_path, NATIVE)
    it.edit(OrderEntries("mcp_servers", ["web", "files"]))
    assert [entry.name for entry in it.look().entries("mcp_servers")] == ["web", "files"]
    assert it.edit(OrderEntries("mcp_servers", ["files", "web"])) == {"mcpx.yaml": NATIVE}


def test_sections_come_change_and_go(tmp_path: Path) -> None:
    it = edited_config(tmp_path, NATIVE)
    it.edit(
        SetSection("policy", {"default": "deny", "rules": [{"effect": "allow", "tools": ["a*"]}]})
    )
    it.edit(SetSection("mode", "search"))
    assert it.load().mode == "search" and it.load().policy.default == "deny"
    it.edit(SetSection("policy", {"default": "deny", "rules": []}))
    assert it.look().section("policy") == {"default": "deny", "rules": []}
    it.edit([SetSection("policy", None), SetSection("mode", None)])
    assert (tmp_path / "mcpx.yaml").read_text() == NATIVE


def test_tokens_of_the_front_keep_their_secrets_when_one_goes(tmp_path: Path) -> None:
    text = (
        "server:\n  auth:\n    tokens:\n      - {name: a, token: first-1}\n      - {name: b, "
        "token: second-2}\n"
    )
    it = edited_config(tmp_path, text + "mcp_servers: []\n")
    section = it.look().section("server")
    assert plain_masks([token["token"] for token in section["auth"]["tokens"]]) == [MASK, MASK]
    section["auth"]["tokens"] = section["auth"]["tokens"][1:]
    assert "second-2" in it.edit(SetSection("server", section))["mcpx.yaml"]
    auth = it.load().server.auth
    assert auth is not None and [token.token for token in auth.tokens] == ["second-2"]


def test_an_edit_goes_to_the_file_in_which_it_stands(tmp_path: Path) -> None:
    """CFG-7: a new entry to the first base file, an overlaid field to the overlay."""
    folder = tmp_path / "config"
    folder.mkdir()
    (folder / "a.yaml").write_text(
        "# a\nmcp_servers:\n  - name: one\n    connection: {type: stdio, command: x}\n"
    )
    (folder / "b.yaml").write_text(
        "# b\nmcp_servers:\n  - name: two\n    connection: {type: stdio, command: y}\n"
    )
    (folder / "b.prod.yaml").write_text("# prod\nmcp_servers:\n  - name: two\n    timeout: 5\n")
    it = EditedConfig(folder, "prod")
    assert [entry.file.name for entry in it.look().entries("mcp_servers")] == ["a.yaml", "b.yaml"]
    assert it.value("mcp_servers", "two")["timeout"] == 5
    new = {"connection": {"type": "stdio", "command": "z"}}
    assert list(it.edit(PutEntry("mcp_servers", "three", new))) == ["a.yaml"]
    assert list(it.edit(SetFields("mcp_servers", "two", {"connection.command": "q"}))) == ["b.yaml"]
    assert list(it.edit(SetFields("mcp_servers", "two", {"timeout": 6}))) == ["b.prod.yaml"]
    assert {server.name: server.timeout for server in it.load().mcp_servers} == {
        "one": 30,
        "two": 6,
        "three": 30,
    }
    assert sorted(it.edit(RemoveEntry("mcp_servers", "two"))) == ["b.prod.yaml", "b.yaml"]
    assert it.value("mcp_servers", "two") is None
    assert all(
        (folder / name).read_text().startswith("# ") for name in ("a.yaml", "b.yaml", "b.prod.yaml")
    )


CLIENT = """\
{
  "mcpServers": {
    // one
    "a": {"command": "x", "args": ["1"], "disabled": false}
  },
  "other": 1
}
"""
SHAPES = {
    "client.json": CLIENT,
    "vscode.json": '{"servers": {"a": {"type": "stdio", "command": "x"}}}',
    "zed.json": (
        '{"theme": "dark", "context_servers": {"a": {"command": {"path": "x", "args": '
        '["1"], "env": {}}}}}'
    ),
    "opencode.json": '{"mcp": {"a": {"type": "local", "command": ["x", "1"], "enabled": true}}}',
    "flat.json": (
        '{"mcp_servers": [{"name": "a", "type": "stdio", "command": "x"}], '
        '"health_check_interval": 30}'
    ),
    "proxy.json": (
        '{"servers": [{"id": "a", "command": ["x", "1"], "timeouts": {"init": 5, "call": 9}}]}'
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_file_of_another_shape_is_edited_in_its_own_words(name: str, tmp_path: Path) -> None:
    """CFG-2, CFG-6: it stays a file of that shape, and means what was wanted."""
    it = edited_config(tmp_path, SHAPES[name], name)
    dialect = it.load().dialect
    it.edit(SetFields("mcp_servers", "a", {"enabled": False}))
    assert [(server.name, server.enabled) for server in it.load().mcp_servers] == [("a", False)]
    it.edit(
        SetFields(
            "mcp_servers",
            "a",
            {"enabled": True, "connection.args": ["2", "3"], "prefix": "p", "timeout": 7},
        )
    )
    web = {
        "connection": {"type": "http", "url": "http://h/x", "headers": {"K": "v"}},
        "enabled": False,
    }
    program = {"connection": {"type": "stdio", "command": "y"}}
    it.edit([PutEntry("mcp_servers", "b", web), PutEntry("mcp_servers", "c", program)])
    it.edit(PutEntry("mcp_servers", "c", {**it.value("mcp_servers", "c"), "name": "d"}))
    config = it.load()
    a, b, d = config.mcp_servers
    assert config.dialect == dialect
    assert (a.enabled, getattr(a.connection, "args", ()), a.prefix, a.timeout) == (
        True,
        ("2", "3"),
        "p",
        7,
    )
    assert (b.name, b.enabled, b.connection.type, getattr(b.connection, "url", "")) == (
        "b",
        False,
        "http",
        "http://h/x",
    )
    assert (d.name, d.connection.type) == ("d", "stdio")
    it.edit([RemoveEntry("mcp_servers", "b"), RemoveEntry("mcp_servers", "d")])
    assert [server.name for server in it.load().mcp_servers] == ["a"]


@pytest.mark.parametrize("name", SHAPES)
def test_many_new_entries_are_one_change_of_the_file(name: str, tmp_path: Path) -> None:
    """A hundred of them would else be a hundred times the whole file, minutes in a large one."""
    it = edited_config(tmp_path, SHAPES[name], name)
    read: list[Mapping[Path, str]] = []

    def reading(texts: Mapping[Path, str]) -> Written:
        read.append(texts)
        return read_written(it.where, texts)

    new = [
        PutEntry("mcp_servers", f"n{number}", {"connection": {"type": "stdio", "command": "y"}})
        for number in (1, 2, 3)
    ]
    texts = edited(it.look(), new, reading)
    assert len(read) == 1
    for path, text in texts.items():
        path.write_text(text, newline="")
    assert [server.name for server in it.load().mcp_servers] == ["a", "n1", "n2", "n3"]
    with pytest.raises(EditError, match="already"):
        it.edit(
            [
                PutEntry("mcp_servers", "n4", new[0].entry),
                PutEntry("mcp_servers", "n4", new[0].entry, create=True),
            ]
        )


def test_a_clients_file_keeps_its_comments_and_the_keys_of_others(tmp_path: Path) -> None:
    it = edited_config(tmp_path, CLIENT, "client.json")
    new = it.edit(
        PutEntry(
            "mcp_servers", "b", {"connection": {"type": "stdio", "command": "y", "args": ["-y"]}}
        )
    )
    assert new["client.json"] == CLIENT.replace(
        "false}\n", 'false},\n    "b": {"command": "y", "args": ["-y"]}\n'
    )


def test_our_own_sections_stand_beside_a_clients_servers(tmp_path: Path) -> None:
    it = edited_config(tmp_path, CLIENT, "client.json")
    it.edit(PutEntry("profiles", "p", {"servers": ["a"]}))
    assert [profile.name for profile in it.load().profiles] == ["p"]


@pytest.mark.parametrize(
    "fields", [{"trust": "pin"}, {"auth": {"ref": "k"}, "trust": "quarantine"}]
)
def test_what_a_shape_cannot_say_is_refused_with_what_to_do(
    fields: Mapping[str, Any], tmp_path: Path
) -> None:
    it = edited_config(tmp_path, CLIENT, "client.json")
    with pytest.raises(EditError) as caught:
        it.edit(SetFields("mcp_servers", "a", fields))
    assert (
        caught.value.code == "not_possible"
        and "trust" in caught.value.message
        and "native" in caught.value.hint
    )
    zed = edited_config(tmp_path, SHAPES["zed.json"], "zed.json")
    with pytest.raises(EditError) as caught:
        zed.edit(SetSection("mode", "search"))
    assert caught.value.code == "not_possible"


@pytest.mark.parametrize("name", SHAPES)
def test_a_file_is_converted_to_the_native_shape(name: str, tmp_path: Path) -> None:
    """CFG-8: what runs on it is the same; then everything can be said."""
    it = edited_config(tmp_path, SHAPES[name], name)
    before = it.load()
    it.edit(Convert())
    after = it.load()
    assert after.dialect == "native"
    for key in ("mode", "naming", "mcp_servers", "commands", "global_"):
        assert getattr(after, key) == getattr(before, key), key
    it.edit(SetFields("mcp_servers", "a", {"trust": "pin"}))


def test_a_toml_file_is_read_and_not_written(tmp_path: Path) -> None:
    it = edited_config(tmp_path, (EXAMPLES / "clients" / "codex.toml").read_text(), "codex.toml")
    name = it.look().entries("mcp_servers")[0].name
    for change in (
        RemoveEntry("mcp_servers", name),
        PutEntry("mcp_servers", "n", {"connection": {}}),
        SetSection("mode", "auto"),
    ):
        with pytest.raises(EditError, match="TOML") as caught:
            it.edit(change)
        assert "YAML or JSON" in caught.value.hint


def test_a_broken_file_is_shown_without_its_secrets_and_can_be_mended(tmp_path: Path) -> None:
    it = edited_config(
        tmp_path, "server: {admin_token: abc-secret-9}\nmcp_servers: [\n  token: 'geheim-77'\n"
    )
    written = it.look()
    assert written.told and written.told[0].line and not written.entries("mcp_servers")
    assert "geheim" not in written.text() and "abc-secret" not in written.text()
    with pytest.raises(EditError, match="cannot be read"):
        it.edit(RemoveEntry("mcp_servers", "a"))
    assert it.edit(NewText("mcp_servers: []\n")) == {"mcpx.yaml": "mcp_servers: []\n"}
    assert not it.look().told


def test_the_etag_tells_one_state_from_another(tmp_path: Path) -> None:
    it = edited_config(tmp_path, NATIVE)
    first = it.look().etag
    assert it.look().etag == first and len(first) == 32
    (tmp_path / "mcpx.yaml").write_text(NATIVE + "\n")
    assert it.look().etag != first


@pytest.mark.parametrize(
    "source",
    sorted([*FILES.glob("*.*"), *EXAMPLES.glob("*.yaml"), *EXAMPLES.glob("clients/*.json")]),
    ids=lambda path: path.name,
)
def test_fifty_edits_at_random_leave_every_example_as_the_model_has_it(
    source: Path, tmp_path: Path
) -> None:
    """CFG-6: entries come, change, are renamed, go; comments of what stays stay."""
    path = tmp_path / source.name
    path.write_text(source.read_text())
    it = EditedConfig(path)
    chance = random.Random(source.name)
    model = {entry.name: copy.deepcopy(entry.value) for entry in it.look().entries("mcp_servers")}
    kept = [
        line.strip() for line in source.read_text().splitlines() if line.startswith(("#", "//"))
    ]
    for step in range(50):
        name = chance.choice([*model, ""])
        kind = chance.choice(["add", "toggle", "describe", "rename", "remove"]) if name else "add"
        if kind == "add":
            name, entry = (
                f"new{step}",
                {"connection": {"type": "stdio", "command": "npx", "args": ["-y", f"p{step}"]}},
            )
            it.edit(PutEntry("mcp_servers", name, entry, create=True))
            model[name] = {"name": name, **entry}
        elif kind == "toggle":
            enabled = not model[name].get("enabled", True)
            it.edit(SetFields("mcp_servers", name, {"enabled": enabled}))
            model[name]["enabled"] = enabled
        elif kind == "describe":
            it.edit(SetFields("mcp_servers", name, {"description": f"step {step}: “x”"}))
            model[name]["description"] = f"step {step}: “x”"
        elif kind == "rename":
            new = {**it.value("mcp_servers", name), "name": f"named{step}"}
            it.edit(PutEntry("mcp_servers", name, new))
            model = {
                (f"named{step}" if key == name else key): value for key, value in model.items()
            }
            model[f"named{step}"]["name"] = f"named{step}"
        else:
            it.edit(RemoveEntry("mcp_servers", name))
            del model[name]
        found = {entry.name: entry.value for entry in it.look().entries("mcp_servers")}
        for each in (found, model):
            for value in each.values():
                if value.get("enabled") is True:
                    value.pop("enabled")  # as if it said nothing
        assert found == model and list(found) == list(model), (step, kind, name)
    lines = [line.strip() for line in path.read_text().splitlines()]
    assert [line for line in kept if line not in lines] == []
