"""CFG-6: a text changed in place keeps its comments, its order and its manner, and says exactly
what was wanted."""

import copy
import re
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcpx.config.emit import Form
from mcpx.config.source import tree_of
from mcpx.config.textedit import Unchangeable, rewritten
from mcpx.config.tree import Tree

FILES = Path(__file__).parent / "files"
EXAMPLES = Path(__file__).parents[2] / "examples"
SOURCES = sorted(
    file
    for pattern in ("*.yaml", "*.json", "clients/*.json")
    for file in [*FILES.glob(pattern), *EXAMPLES.glob(pattern)]
)

TRICKY = """\
# head of the file

x-base: &base   # the base
  type: stdio
  command: npx   # comes with node
  env: {A: "1", B: &b two}

mcp_servers:
# first
- name: a    # name of a
  # about the connection
  connection:
    <<: *base
    args: [-y, pkg,   # inline
      "more"]
  # commented: out

# second
# really
-
  name: b
  connection: *base
  description: |
    several
      lines

    # not a comment
  enabled: yes
- {name: c, connection: {type: http, url: "http://x/y#frag"}, prefix: 'c'}   # flow one

- name: d

  connection:

    type: http      # t
    url: >-
      http://x/
      y
    headers:
      "X-Key": ${KEY}
      Y: *b


# detached

global: {}
policy:    # nothing yet
commands: []   # none
"""
COMMENTED = """\
{
  // head
  "mcp_servers": [ // the list
    // one
    {"name": "a", "command": "x", "args": []}, // tail a

    /* two */
    {
      "name": "b", // nb
      "command": "y",
      "env": {"A": "1", "B": "2",}, // env
    },
    {"name":"c","command":"z"}
    // end
  ],
  "global": {}
  // really the end
}
"""


def changed(text: str, change: Callable[[Any], object], form: Form = "yaml") -> str:
    tree = copy.deepcopy(tree_of(text, form))
    assert tree is not None
    change(tree)
    new = rewritten(text, form, tree)
    assert tree_of(new, form) == tree
    return new


def yaml(text: str) -> str:
    return dedent(text).lstrip("\n")


def test_a_changed_value_is_replaced_where_it_stands() -> None:
    """CFG-6: its quotes and the comment behind it stay."""
    text = yaml("""
        server:
          host: "127.0.0.1"   # loopback
          port: 8000
    """)

    def change(tree: Tree) -> None:
        tree["server"].update(host="::1", port=9000)

    assert changed(text, change) == text.replace("127.0.0.1", "::1").replace("8000", "9000")


def test_a_new_key_goes_behind_its_siblings_with_their_indentation() -> None:
    text = yaml("""
        mcp_servers:
            -   name: a
                connection:
                    type: stdio   # how
                    command: x
                    # args: [y]
            # last
    """)
    new = changed(text, lambda tree: tree["mcp_servers"][0]["connection"].update(env={"A": "${B}"}))
    assert new == text.replace(
        "# args: [y]\n", "# args: [y]\n            env:\n                A: '${B}'\n"
    )


def test_an_entry_that_goes_takes_its_own_comment_and_no_other() -> None:
    text = yaml("""
        # the servers

        mcp_servers:
          # about a
          - name: a   # here too
            prefix: x
            # prefix: y

          # apart

          # about b
          - name: b
    """)
    new = changed(text, lambda tree: tree["mcp_servers"].pop(0))
    assert new == "# the servers\n\nmcp_servers:\n\n  # apart\n\n  # about b\n  - name: b\n"


def test_a_new_entry_is_set_apart_as_the_others_are() -> None:
    text = yaml("""
        mcp_servers:
          - name: a

          - name: b

        commands: []
    """)
    new = changed(text, lambda tree: tree["mcp_servers"].append({"name": "c", "prefix": "p"}))
    assert new == text.replace("- name: b\n", "- name: b\n\n  - name: c\n    prefix: p\n")


def test_the_last_entry_that_goes_leaves_an_empty_list_and_the_next_one_fills_it() -> None:
    text = "mcp_servers:   # mine\n  - name: a\n\ncommands: []\n"
    empty = changed(text, lambda tree: tree["mcp_servers"].clear())
    assert empty == "mcp_servers: []   # mine\n\ncommands: []\n"
    again = changed(empty, lambda tree: tree["mcp_servers"].append({"name": "b"}))
    assert again == "mcp_servers:   # mine\n  - name: b\n\ncommands: []\n"


def test_entries_in_another_order_take_their_comments_along() -> None:
    text = yaml("""
        rules:
          # never
          - {effect: deny, tools: [x]}
          # ask before
          - effect: ask   # a person
            tools: [y]
          - effect: allow
    """)
    new = changed(text, lambda tree: tree["rules"].insert(0, tree["rules"].pop(1)))
    assert new == yaml("""
        rules:
          # ask before
          - effect: ask   # a person
            tools: [y]
          # never
          - {effect: deny, tools: [x]}
          - effect: allow
    """)


def test_an_anchor_that_changes_leaves_what_refers_to_it_as_it_was() -> None:
    """CFG-6: nothing changes elsewhere because of how a file is written."""
    text = "base: &b\n  a: 1   # one\n  b: 2\nx:\n  <<: *b\n  c: 3\ny: *b\n"
    new = changed(text, lambda tree: tree["base"].update(a=5))
    assert (
        new
        == "base: &b\n  a: 5   # one\n  b: 2\nx:\n  <<: *b\n  c: 3\n  a: 1\ny:\n  a: 1\n  b: 2\n"
    )


def test_what_comes_by_a_merge_key_can_be_overridden_and_taken_out() -> None:
    text = "base: &b {a: 1, b: 2}\nx:\n  <<: *b   # shared\n  c: 3\n"
    assert changed(text, lambda tree: tree["x"].update(a=9)) == text + "  a: 9\n"
    assert (
        changed(text, lambda tree: tree["x"].pop("a"))
        == "base: &b {a: 1, b: 2}\nx:\n  c: 3\n  b: 2\n"
    )


def test_an_entry_of_a_json_file_keeps_the_commas_right() -> None:
    text = (
        '{\n  "mcpServers": {\n    "a": {"command": "x"}, // first\n    "b": {"command": "y"} '
        "// last\n  }\n}\n"
    )

    def add(tree: Tree) -> None:
        tree["mcpServers"]["c"] = {"command": "z", "args": ["1"]}

    added = text.replace(
        '"y"} // last\n', '"y"}, // last\n    "c": {"command": "z", "args": ["1"]}\n'
    )
    assert changed(text, add, "json") == added
    assert changed(text, lambda tree: tree["mcpServers"].pop("b"), "json") == (
        '{\n  "mcpServers": {\n    "a": {"command": "x"} // first\n  }\n}\n'
    )


def test_a_json_file_on_one_line_stays_on_one_line() -> None:
    text = '{"mcpServers": {"a": {"command": "x"}}}'
    new = changed(text, lambda tree: tree["mcpServers"].update(b={"command": "y"}), "json")
    assert new == '{"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}}'


def test_lines_end_as_they_did() -> None:
    new = changed("a: 1\r\nb:\r\n  - x\r\n", lambda tree: tree["b"].append("y"))
    assert new == "a: 1\r\nb:\r\n  - x\r\n  - y\r\n"


def test_a_last_line_without_an_end_is_no_obstacle() -> None:
    assert changed("a: 1", lambda tree: tree.update(b=2)) == "a: 1\nb: 2"
    assert changed("a:\n  - 1", lambda tree: tree["a"].append(2)) == "a:\n  - 1\n  - 2"


@pytest.mark.parametrize(
    "value",
    ["true", "12", "1:30", "", " lead", "a: b", "# hash", "- dash", "${VAR}", "multi\nline", "multi\nline\n", "\n",
     "a\n\n b", "'q'", '"d"', "@x", "%y", "*z", "&w", "!t", "~", "0x1f", "2020-01-01", "<<", "=", "é获", "tab\there",
     "x" * 300, "\x07"],
)  # fmt: skip
@pytest.mark.parametrize(
    "text", ["k: old\n", "k: 'old'   # c\n", 'k: "old"', "k: |\n  old\n", "k: {a: 1}\n", "k: [1]\n"]
)
def test_any_text_is_written_so_that_it_is_read_again(value: str, text: str) -> None:
    changed(text, lambda tree: tree.update(k=value))
    changed('{"k": "old"}', lambda tree: tree.update(k=value), "json")


def test_a_number_that_is_text_anyway_is_not_touched() -> None:
    """CFG-6: `PORT: 8080` of an environment is shown as text; saved as that it is no change."""
    text = "connection:\n  env:\n    PORT: 8080\n    VERSION: 1.10\n"
    assert (
        rewritten(text, "yaml", {"connection": {"env": {"PORT": "8080", "VERSION": "1.10"}}})
        == text
    )


def test_a_change_that_cannot_be_made_is_refused_and_not_made_up() -> None:
    with pytest.raises(Unchangeable):
        rewritten("a: 1\n", "yaml", {})


# Whatever is changed

VALUES: list[Any] = [
    "x", "a: b", "${VAR}", "true", 5, 1.5, True, None, "multi\nline", "# hash", "", [], {}, ["a", "b c"], "é获",
    " lead", {"k": "v", "n": {"m": [1, {"z": 2}]}}, [{"name": "q", "v": 1}, {"name": "r"}], "x" * 150,
]  # fmt: skip
KEYS = ["new", "on", "a b", "x:y", "8080", "é"]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children: list[tuple[Any, Any]] = (
        list(value.items())
        if isinstance(value, dict)
        else list(enumerate(value))
        if isinstance(value, list)
        else []
    )
    return [(*path, key) for key, _ in children] + [
        place for key, item in children for place in places(item, (*path, key))
    ]


def at(tree: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        tree = tree[step]
    return tree


def disturb(tree: Tree, draw: Any) -> str:
    """One change at random; what kind."""
    path = draw(st.sampled_from(places(tree)))
    holder, key = at(tree, path[:-1]), path[-1]
    value = copy.deepcopy(draw(st.sampled_from(VALUES)))
    kind = draw(st.sampled_from(["set", "remove", "add", "insert", "shuffle", "rename"]))
    if kind == "set":
        holder[key] = value
    elif kind == "remove" and not (len(path) == 1 and len(tree) == 1):
        del holder[key]
    elif kind == "add" and isinstance(holder[key], dict):
        holder[key][draw(st.sampled_from(KEYS))] = value
    elif kind == "add" and isinstance(holder[key], list):
        holder[key].append(value)
    elif kind == "insert" and isinstance(holder, list):
        holder.insert(key, value)
    elif kind == "shuffle" and isinstance(holder, list):
        holder[:] = draw(st.permutations(holder))
    elif kind == "rename" and isinstance(holder, dict):
        pairs = [("renamed" if each == key else each, item) for each, item in holder.items()]
        holder.clear()
        holder.update(pairs)
    return kind


TEXTS: list[tuple[str, Form]] = [
    *((file.read_text(), "json" if file.suffix == ".json" else "yaml") for file in SOURCES),
    (TRICKY, "yaml"),
    (TRICKY.rstrip(), "yaml"),
    (TRICKY.replace("\n", "\r\n"), "yaml"),
    (COMMENTED, "json"),
]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), st.sampled_from(TEXTS))
def test_whatever_is_changed_the_text_says_it(data: st.DataObject, text: tuple[str, Form]) -> None:
    """CFG-6: on all examples, and on a file that uses all that YAML offers."""
    said, form = text
    tree = copy.deepcopy(tree_of(said, form))
    assert tree is not None
    for _ in range(data.draw(st.integers(1, 3))):
        disturb(tree, data.draw)
    assert (
        tree_of(rewritten(said, form, tree), form) is not None
    )  # that it is the wanted one is checked inside


def comments_of(text: str, form: Form) -> list[str]:
    found = re.findall(
        r"//[^\n]*|/\*.*?\*/" if form == "json" else r"(?m)(?:^|(?<=\s))#[^\n]*", text
    )
    return [comment.strip() for comment in found if not comment.startswith("//localhost")]


ADDRESSES = re.compile(r"https?://\S*")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), st.sampled_from(TEXTS))
def test_fifty_changes_of_values_keep_every_comment_in_its_order(
    data: st.DataObject, text: tuple[str, Form]
) -> None:
    """CFG-6: values that change, keys and entries that come; none of it costs a comment."""
    said, form = text
    before = comments_of(ADDRESSES.sub("", said), form)
    for step in range(50):
        tree = copy.deepcopy(tree_of(said, form))
        assert tree is not None
        leaves = [path for path in places(tree) if not isinstance(at(tree, path), dict | list)]
        path = data.draw(st.sampled_from(leaves))
        holder = at(tree, path[:-1])
        if step % 5 == 4 and isinstance(holder, dict):
            holder[f"added{step}"] = data.draw(st.sampled_from(["x", 1, True, ["a"], {"k": "v"}]))
        elif step % 5 == 3 and isinstance(holder, list):
            holder.append(f"item{step}")
        elif isinstance(holder[path[-1]], str) and "\n" not in holder[path[-1]]:
            holder[path[-1]] = data.draw(st.sampled_from(["other", "${VAR}", "a: b", "", "获"]))
        said = rewritten(said, form, tree)
        assert tree_of(said, form) == tree
    assert comments_of(ADDRESSES.sub("", said), form) == before
