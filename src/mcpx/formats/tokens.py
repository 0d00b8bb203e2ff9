"""How many tokens a text is, about, without a tokenizer (SUR-10).

Promised: the same number everywhere and for ever, so that menus are byte-stable; one pass in C. Not
promised: the count of any model's own tokenizer. `bench/tokens.py` measures how far off it is.
"""


def estimate(text: str) -> int:
    """ASCII characters / 4 + other characters, rounded up."""
    if text.isascii():
        return -(-len(text) // 4)
    ascii_characters = len(text.encode("ascii", "ignore"))
    return -(-ascii_characters // 4) + len(text) - ascii_characters
