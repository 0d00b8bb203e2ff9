"""ADM-2, SEC-4: what is written is told without its literal secrets, and those are found again by
their place."""

import copy
import string
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.masks import plain_masks
from mcpx.config.masking import MASK, Masks, Unknown, mask, secrets_written, unmask

TREE: dict[str, Any] = {
    "server": {
        "admin_token": "adm-1",
        "tls": {"cert": "/c", "key": "/k"},
        "auth": {"tokens": [{"name": "ci", "token": "tok-1"}, {"name": "dev", "token": "tok-2"}]},
    },
    "mcp_servers": [
        {
            "name": "a",
            "auth": {"ref": "key"},
            "connection": {
                "type": "stdio",
                "command": "x",
                "args": [
                    "--token",
                    "arg-1",
                    "--api-key=arg-2",
                    "-y",
                    "postgres://u:pw-1@h/db",
                    "--token",
                    "${T}",
                ],
                "env": {
                    "GITHUB_TOKEN": "env-1",
                    "PIN": 12345,
                    "LOG": "info",
                    "A_TOKEN": "${T}",
                    "B_TOKEN": "${T:-default-1}",
                    "C_SECRET": "literal-1-${T}",
                    "SEALED_KEY": "enc:v1:abc",
                    "FOUND": "ghp_0123456789abcdefghij01",
                },
            },
        },
        {
            "name": "b",
            "connection": {
                "type": "http",
                "url": "https://h/x?token=url-1&page=2",
                "headers": {
                    "Authorization": "Bearer head-1",
                    "X-Thing": "${X}",
                    "Accept": "application/json",
                },
            },
        },
    ],
    "commands": [
        {
            "name": "c",
            "type": "http",
            "http": {"url": "https://h", "params": {"api_key": "{key}", "city": "{city}"}},
        }
    ],
    "auth_configs": [
        {
            "name": "k",
            "type": "api_key",
            "api_key": {"location": "query", "name": "api_key", "value": "val-1"},
        },
        {
            "name": "o",
            "type": "oauth2",
            "oauth2": {"client_id": "id", "client_secret": "sec-1", "scope": "s"},
        },
        {
            "name": "h",
            "type": "custom_header",
            "custom_header": {"headers": {"X-Odd": "odd-1", "Accept": "a/b"}},
        },
    ],
    "profiles": [{"name": "p", "tokens": ["ci"]}],
    "global": {
        "audit": {
            "sink": "https://h",
            "sink_headers": {"Authorization": "Bearer sink-1", "X-Scope": "team"},
        },
        "traces": {"endpoint": "https://h", "headers": {"X-Key": "trace-1"}},
    },
}
SECRETS = {
    "adm-1", "tok-1", "tok-2", "arg-1", "arg-2", "pw-1", "env-1", "12345", "default-1", "literal-1-", "url-1", "head-1",
    "val-1", "sec-1", "odd-1", "sink-1", "trace-1", "ghp_0123456789abcdefghij01",
}  # fmt: skip


def test_literal_secrets_are_masked_and_nothing_else_is() -> None:
    """SEC-4: also in addresses, on command lines, and as the default of a reference."""
    assert secrets_written(TREE) == SECRETS
    shown = plain_masks(mask(TREE))
    assert not [secret for secret in SECRETS if secret in repr(shown)]
    connection = shown["mcp_servers"][0]["connection"]
    assert connection["args"] == [
        "--token",
        MASK,
        f"--api-key={MASK}",
        "-y",
        f"postgres://u:{MASK}@h/db",
        "--token",
        "${T}",
    ]
    assert (
        connection["env"]["A_TOKEN"] == "${T}" and connection["env"]["B_TOKEN"] == f"${{T:-{MASK}}}"
    )
    assert connection["env"]["LOG"] == "info" and connection["env"]["SEALED_KEY"] == "enc:v1:abc"
    assert shown["mcp_servers"][1]["connection"]["headers"]["Authorization"] == f"Bearer {MASK}"
    for path in (("server", "tls"), ("profiles",), ("commands",)):
        one, other = TREE, shown
        for step in path:
            one, other = one[step], other[step]
        assert one == other


def test_a_mask_stands_for_what_is_stored() -> None:
    assert unmask(mask(TREE), TREE) == TREE


def test_masks_find_their_secrets_after_lists_changed_their_order() -> None:
    new = mask(TREE)
    new["server"]["auth"]["tokens"].reverse()
    new["mcp_servers"].reverse()
    new["auth_configs"].pop(0)
    args = new["mcp_servers"][1]["connection"]["args"]
    args.insert(0, "first")
    found = unmask(new, TREE)
    assert found["server"]["auth"]["tokens"] == TREE["server"]["auth"]["tokens"][::-1]
    assert found["mcp_servers"][0] == TREE["mcp_servers"][1]
    assert found["mcp_servers"][1]["connection"]["args"] == [
        "first",
        *TREE["mcp_servers"][0]["connection"]["args"],
    ]
    assert found["auth_configs"] == TREE["auth_configs"][1:]


def test_what_is_around_a_mask_may_change() -> None:
    old = {"connection": {"url": "https://u:pw-1@h/x", "headers": {"Authorization": "Bearer abc"}}}
    new = {"connection": {"url": f"https://u:{MASK}@other/y", "headers": {"Authorization": MASK}}}
    assert unmask(new, old) == {
        "connection": {"url": "https://u:pw-1@other/y", "headers": {"Authorization": "Bearer abc"}}
    }


def test_a_renamed_variable_keeps_its_secret_while_its_name_keeps_it_hidden() -> None:
    old = {"env": {"OLD_TOKEN": "env-1", "LOG": "info"}}
    masked = mask(old)["env"]["OLD_TOKEN"]
    assert unmask({"env": {"NEW_TOKEN": masked, "LOG": "info"}}, old) == {
        "env": {"NEW_TOKEN": "env-1", "LOG": "info"}
    }
    with pytest.raises(Unknown):
        unmask({"env": {"LOG_FORMAT": masked, "LOG": "info"}}, old)


def test_the_name_of_a_mask_is_the_path_of_its_secret() -> None:
    """It stays the same for another process, another order, and another value."""
    first, second = {"name": "a", "token": "tok-1"}, {"name": "b", "token": "tok-2"}
    masked, other = mask({"tokens": [first, second]}), mask({"tokens": [second, first]})
    assert masked["tokens"] == [*reversed(other["tokens"])]
    assert masked["tokens"][0]["token"] == f"{MASK}bf584aeb"
    assert mask({"tokens": [{"name": "a", "token": "tok-3"}]})["tokens"] == masked["tokens"][:1]


def test_a_mask_without_a_name_means_unchanged_if_one_value_fits() -> None:
    old = {"url": "https://u:pw-1@h/", "env": {"A_PIN": 12345}}
    new = {"url": f"https://u:{MASK}@other/", "env": {"A_PIN": MASK}}
    assert unmask(new, old) == {"url": "https://u:pw-1@other/", "env": {"A_PIN": 12345}}
    with pytest.raises(Unknown):
        unmask({"url": f"https://{MASK}@h/"}, {"url": "https://u:pw-1@h/?token=abc-1"})


@pytest.mark.parametrize(
    "new",
    [
        {"env": {"X_TOKEN": MASK}},
        {"description": MASK},
        {"env": {"A_TOKEN": [MASK]}},
        {"args": ["--token", MASK, "--password", MASK]},
        {"url": f"https://u:{MASK}@h/?token={MASK}"},
    ],
)
def test_a_mask_for_nothing_is_a_mistake(new: Any) -> None:
    old = {"env": {}, "description": "plain", "args": [], "url": "https://h/"}
    with pytest.raises(Unknown) as caught:
        unmask(new, old)
    assert caught.value.path[0] in new


def test_a_secret_that_changed_is_seen_to_have_changed() -> None:
    known = secrets_written({"env": {"A_TOKEN": "one-1"}})
    masked = Masks(known).of_tree({"env": {"A_TOKEN": "one-1", "B_TOKEN": "two-2"}})
    assert plain_masks(masked) == {"env": {"A_TOKEN": MASK, "B_TOKEN": f"{MASK} (new)"}}


names = st.sampled_from(["TOKEN", "API_KEY", "LOG_LEVEL", "password", "X"])
texts = st.text(alphabet=string.ascii_letters + string.digits + "${}:/@?&=- ", max_size=30)
trees = st.dictionaries(
    st.sampled_from(["env", "headers", "connection", "api_key", "url", "args"]),
    st.one_of(texts, st.dictionaries(names, texts, max_size=3), st.lists(texts, max_size=4)),
    max_size=3,
)


@settings(max_examples=300, deadline=None)
@given(trees)
def test_whatever_is_written_comes_back(tree: dict[str, Any]) -> None:
    """ADM-2: saving what was told changes nothing."""
    before = copy.deepcopy(tree)
    assert unmask(mask(tree), tree) == before == tree


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"args": ["--token", "arg-1"]}, {"args": ["--note", MASK]}),
        ({"args": ["--token", "arg-1"]}, {"args": [MASK]}),
        (
            {"args": ["--token", "arg-1", "--password=arg-2"]},
            {"args": ["--token", MASK, "--token", MASK]},
        ),
        ({"url": "https://h/?token=abc-1"}, {"url": f"https://h/{MASK}"}),
        ({"env": {"DB": "db://u:pw-1@h/x"}}, {"env": {"DB": f"x{MASK}"}}),
        ({"env": {"A_PIN": 12345}}, {"env": {"NOTE": MASK}}),
    ],
)
def test_a_mask_is_no_way_to_read_what_it_hides(old: Any, new: Any) -> None:
    """Where nothing would say any longer that it is a secret, it would be shown by the next
    answer."""
    with pytest.raises(Unknown):
        unmask(new, old)


@pytest.mark.parametrize("piece", ["?a", "eyJ-", "://u:", "a=&"])
def test_a_long_text_is_masked_in_no_time(piece: str) -> None:
    """No other thread runs while a pattern is looked for."""
    began = time.process_time()
    mask({"url": piece * (99_000 // len(piece))})
    assert time.process_time() - began < 3


def test_a_deeply_nested_text_is_masked_in_no_time() -> None:
    """The memory and time for JSON grow with its length and its depth."""
    began = time.process_time()
    masked = mask({"env": {"SETTINGS": "[1," * 20_000 + "1" + "]" * 20_000}})
    assert plain_masks(masked) == {"env": {"SETTINGS": MASK}}
    assert time.process_time() - began < 3
