"""A world of servers full of words nobody must hear, and a second opinion on who may see what
(SEC-2, SEC-5, SEC-7).

Every thing has two words: one is in its name or URI, the other, its secret, in all else there is of
it. What is hidden is worked out here from the configuration alone, by other code than the
program's.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from random import Random
from typing import Any

Json = dict[str, Any]
PROGRAM = Path(__file__).with_name("whispering_server.py")


class Words:
    """Never the same twice, and like nothing anybody says."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.given: set[str] = set()

    def new(self) -> str:
        while True:
            word = "".join(self._random.choice(letters) for letters in ["bdfgkmpvwz", "aeiou"] * 4)
            if word not in self.given:
                self.given.add(word)
                return word


@dataclass(frozen=True)
class Thing:
    """A tool, prompt, resource or template."""

    server: str
    kind: str
    name: str
    """As its server calls it; of resources and templates the URI."""
    words: tuple[str, str]
    read_only: bool = False
    held: bool = False

    @property
    def public(self) -> str:
        return f"{self.server}_{self.name}"

    @property
    def names(self) -> tuple[str, ...]:
        return (
            (self.public, self.name, f"{self.server}.{self.name}")
            if self.kind in ("tools", "prompts")
            else (self.name,)
        )

    @property
    def definition(self) -> Json:
        secret = self.words[1]
        match self.kind:
            case "tools":
                takes = {"type": "object", "properties": {secret: {"type": "string"}}}
                hints = {"readOnlyHint": self.read_only, "title": secret}
                return {
                    "name": self.name,
                    "description": secret,
                    "inputSchema": takes,
                    "annotations": hints,
                }
            case "prompts":
                return {
                    "name": self.name,
                    "description": secret,
                    "arguments": [{"name": "about", "description": secret}],
                }
            case "resources":
                return {"uri": self.name, "name": secret, "description": secret}
            case _:
                return {"uriTemplate": self.name, "name": secret, "description": secret}


@dataclass
class WhisperingServer:
    name: str
    secret: str
    trust: str = "open"
    state: str = "up"
    """`up`, `slow` (does not answer), `down`."""
    things: list[Thing] = field(default_factory=list[Thing])

    @property
    def shown(self) -> list[Thing]:
        """What whoever sees everything sees."""
        return (
            []
            if self.trust == "quarantine" or self.state != "up"
            else [one for one in self.things if not one.held]
        )

    def entry(self, folder: Path) -> Json:
        arguments = ["-I", "-S", str(PROGRAM), str(self.file(folder))]
        if self.state != "up":
            arguments = [
                "-I",
                "-S",
                "-c",
                "import time; time.sleep(99)" if self.state == "slow" else "raise SystemExit(3)",
            ]
        connection = {"type": "stdio", "command": sys.executable, "args": arguments}
        about = {
            "description": self.secret,
            "prefix": self.name,
            "trust": self.trust,
            "timeout": 60,
        }
        return {"name": self.name, **about, "connection": connection}

    def file(self, folder: Path) -> Path:
        return folder / f"{self.name}.json"

    def log(self, folder: Path) -> list[str]:
        log = Path(f"{self.file(folder)}.log")
        return log.read_text(encoding="utf-8").splitlines() if log.exists() else []

    def tell(self, folder: Path, things: Iterable[Thing], *, mark: str = "") -> None:
        """Have it offer these from now on; another `mark` has it make noise."""
        offers: Json = {
            "word": self.secret,
            "instructions": f"About {self.secret}.",
            "secrets": {},
            "mark": mark,
        }
        offers |= {kind: [] for kind in ("tools", "prompts", "resources", "templates")}
        for one in things:
            offers[one.kind].append(one.definition)
            offers["secrets"][one.name] = one.words[1]
        new = self.file(folder).with_suffix(".new")
        new.write_text(json.dumps(offers), encoding="utf-8")
        new.replace(self.file(folder))


class World:
    """Six servers: two that are open, one pinned that has changed, one in quarantine, one that is
    slow, one down."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.words = Words(random)
        self.servers = [self._server() for _ in range(6)]
        one, two, self.pinned, self.quarantined, slow, down = self.servers
        self.pinned.trust, self.quarantined.trust = "pin", "quarantine"
        slow.state, down.state = "slow", "down"
        for server in (one, two, self.pinned, self.quarantined):
            self._fill(server)
        changed = self.pinned.things[0]
        self.first_sight = list(self.pinned.things)
        self.pinned.things[0] = replace(
            changed, held=True, words=(changed.words[0], self.words.new())
        )
        self.pinned.things += [
            replace(self._thing(self.pinned, kind), held=True) for kind in ("tools", "prompts")
        ]
        self.old_words = changed.words

    def _server(self) -> WhisperingServer:
        return WhisperingServer(self.words.new(), self.words.new())

    def _fill(self, server: WhisperingServer) -> None:
        for kind, count in (("tools", 2), ("prompts", 1), ("resources", 2), ("templates", 1)):
            server.things += [self._thing(server, kind) for _ in range(count)]

    def _thing(self, server: WhisperingServer, kind: str) -> Thing:
        words = (self.words.new(), self.words.new())
        name = {"resources": f"{words[0]}://a/b", "templates": f"{words[0]}://c/{{id}}"}.get(
            kind, words[0]
        )
        return Thing(server.name, kind, name, words, self.random.random() < 0.5)

    @property
    def things(self) -> list[Thing]:
        return [one for server in self.servers for one in server.things]

    # Random configurations
    # -------------------------------------------------------------------------------------------

    def _patterns(self, names: Sequence[str]) -> list[str]:
        """Some that mean something here."""
        made: list[str] = []
        for _ in range(self.random.randint(1, 3)):
            name = self.random.choice(names)
            form = self.random.choice(["{}", "{}", "*", "{0:.3}*", "?*", "[a-m]*"])
            made.append(self.random.choice(["", "", "!"]) + form.format(name))
        return made

    def _names(self, *kinds: str) -> list[str]:
        return [name for one in self.things if one.kind in kinds for name in one.names]

    def profile(self, name: str) -> Json:
        made: Json = {
            "name": name,
            "mode": self.random.choice(["direct", "inspect", "describe", "search", "auto"]),
        }
        for key, names in (
            ("servers", [server.name for server in self.servers]),
            ("tools", self._names("tools")),
            ("prompts", self._names("prompts")),
            ("resources", self._names("resources", "templates")),
        ):
            if self.random.random() < 0.55:
                made[key] = self._patterns(names) if self.random.random() < 0.9 else []
        if self.random.random() < 0.2:
            made["read_only"] = True
        return made

    def rule(self, profiles: Sequence[str]) -> Json:
        made: Json = {"effect": self.random.choice(["deny", "deny", "deny", "allow"])}
        if self.random.random() < 0.7:
            made["profiles"] = self.random.sample(profiles, self.random.randint(1, len(profiles)))
        if self.random.random() < 0.6:
            made["servers"] = [self.random.choice(self.servers).name]
        if self.random.random() < 0.5:
            made["tools"] = self._patterns(self._names("tools"))
        if self.random.random() < 0.2:
            made["read_only"] = self.random.random() < 0.5
        if self.random.random() < 0.2:
            made["destructive"] = self.random.random() < 0.5
        if self.random.random() < 0.2:
            made["arguments"] = {"x": "*"}
        if self.random.random() < 0.25:
            made["reason"] = "because"
        return made

    def policy(self, profiles: Sequence[str]) -> Json:
        default = "deny" if self.random.random() < 0.2 else "allow"
        return {
            "default": default,
            "rules": [self.rule(profiles) for _ in range(self.random.randint(0, 4))],
        }


class Sees:
    """What somebody sees through a profile (None: through none) under a policy."""

    def __init__(self, world: World, profile: Json | None, policy: Json) -> None:
        self.world = world
        self.profile = profile or {}
        self._name = profile["name"] if profile is not None else None
        self._policy = policy
        narrows = self.profile.keys() & {"servers", "tools", "prompts", "resources", "read_only"}
        self.limited = bool(narrows) or policy != {"default": "allow", "rules": []}
        self.things = [one for server in world.servers for one in server.shown if self.sees(one)]
        self.servers = {server.name for server in world.servers if self._knows(server)}

    def sees(self, one: Thing) -> bool:
        key = "resources" if one.kind == "templates" else one.kind
        if not meant(self.profile.get("servers"), one.server) or not meant(
            self.profile.get(key), *one.names
        ):
            return False
        if self.profile.get("read_only") and one.kind == "tools" and not one.read_only:
            return False
        return not self._hidden(one)

    def _hidden(self, one: Thing) -> bool:
        """The first rule that holds whatever the arguments are denies without a reason, and so do
        all before it."""
        for rule in self._rules(one.server):
            if tools_only(rule):
                destructive = not one.read_only
                if one.kind != "tools" or not meant(rule.get("tools"), *one.names):
                    continue
                if rule.get("read_only", one.read_only) != one.read_only:
                    continue
                if rule.get("destructive", destructive) != destructive:
                    continue
            if rule["effect"] != "deny":
                return False
            if "arguments" not in rule:
                return not rule.get("reason")
        return self._policy["default"] == "deny"

    def _rules(self, server: str) -> Iterator[Json]:
        for rule in self._policy["rules"]:
            if self._name in rule.get("profiles", [self._name]) and meant(
                rule.get("servers"), server
            ):
                yield rule

    def _knows(self, server: WhisperingServer) -> bool:
        """Something of it is seen; or it has told nothing yet, and might be."""
        if any(one.server == server.name for one in self.things):
            return True
        if (
            server.shown
            or server.trust == "quarantine"
            or not meant(self.profile.get("servers"), server.name)
        ):
            return False
        for rule in self._rules(server.name):
            if rule["effect"] != "deny" or (rule.get("reason") and "arguments" not in rule):
                return True
            if not tools_only(rule):
                return False
        return self._policy["default"] != "deny"

    @property
    def hidden(self) -> list[Thing]:
        """What there is and is not seen."""
        return [one for one in self.world.things if one not in self.things]

    @property
    def canaries(self) -> set[str]:
        words = {word for one in self.hidden for word in one.words}
        words |= {
            word
            for s in self.world.servers
            if s.name not in self.servers
            for word in (s.name, s.secret)
        }
        return words | set(self.world.old_words)


def tools_only(rule: Json) -> bool:
    return any(key in rule for key in ("tools", "read_only", "destructive", "arguments"))


def meant(patterns: list[str] | None, *names: str) -> bool:
    if patterns is None:
        return True
    for pattern in reversed(patterns):
        if any(fnmatchcase(name, pattern.removeprefix("!")) for name in names):
            return not pattern.startswith("!")
    return bool(patterns) and all(pattern.startswith("!") for pattern in patterns)
