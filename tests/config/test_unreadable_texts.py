"""ADM-2: a text that cannot be read as a whole is shown without what looks like a secret, in linear
time."""

import time

import pytest

from kit.masks import plain_masks
from mcpx.config.masking import MASK, Masks
from mcpx.config.written import mask_text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("API_KEY: abc-1\nLOG: info", f"API_KEY: {MASK}\nLOG: info"),
        ('"token": "abc-1", "x": [', f'"token": "{MASK}", "x": ['),
        (f"{'a' * 150}_token=abc-1", f"{'a' * 150}_token={MASK}"),
        ("db://u:pw-1@h and db://tok-1@h", f"db://u:{MASK}@h and db://{MASK}@h"),
        ("TOKEN: ${T}", "TOKEN: ${T}"),
        ("Authorization: Bearer abc-1", f"Authorization: Bearer {MASK}"),
    ],
)
def test_secrets_beside_their_names_are_masked(text: str, shown: str) -> None:
    masked = mask_text(text, "yaml", None, Masks())
    assert plain_masks(masked) == shown


@pytest.mark.parametrize(
    "text", ["x" * 900_000, "://" + "a" * 900_000, "eyJ-" * 200_000, "a" + " " * 900_000]
)
def test_a_long_line_is_shown_in_no_time(text: str) -> None:
    """No other thread runs while a pattern is looked for."""
    began = time.process_time()
    mask_text(text, "json", None, Masks())
    assert time.process_time() - began < 3
