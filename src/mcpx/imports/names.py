"""Names that clients and configurations take, made of names that strangers chose."""

import re

LONGEST = 64
"""Characters of a name: of a tool, an argument, a variable."""
_NOISE = {
    "api",
    "apis",
    "rest",
    "the",
    "openapi",
    "swagger",
    "spec",
    "specification",
    "reference",
    "v1",
    "v2",
    "v3",
}


def safe(text: str) -> str:
    """With nothing but letters, digits, `_` and `-`; perhaps nothing at all."""
    return (
        re.sub(r"_{2,}", "_", re.sub(r"[^A-Za-z0-9_-]", "_", text[:1_000]))
        .strip("_-")[:LONGEST]
        .strip("_-")
    )


def argument(text: str) -> str:
    """The name of an argument: as it is, where clients take it and `{…}` can hold it."""
    return text if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}", text) else safe(text) or "value"


def slug(title: str) -> str:
    """The few words of a title that tell it from others."""
    words = [word for word in re.findall(r"[a-z0-9]+", title[:200].lower()) if word not in _NOISE]
    return "_".join(words[:3])[:24].strip("_") or "api"


def snake(text: str) -> str:
    """In small letters, `_` between words."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", text[:200])
    return re.sub(r"[^a-z0-9]+", "_", parted.lower()).strip("_")


def constant(*words: str) -> str:
    """The name of a variable; a word that the one before ends with is not said twice."""
    made = ""
    for part in (snake(word).upper() for word in words):
        if part and made != part and not made.endswith(f"_{part}"):
            made = f"{made}_{part}" if made else part
    made = made[:LONGEST].strip("_") or "SECRET"
    return f"_{made}"[:LONGEST] if made[0].isdigit() else made


class Unique:
    """Gives each name once: the second `list` is `list_2`."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._taken

    def take(self, name: str) -> str:
        made = name
        while made in self._taken:
            number = self._next[name] = self._next.get(name, 1) + 1
            made = f"{name[: LONGEST - len(str(number)) - 1]}_{number}"
        self._taken.add(made)
        return made
