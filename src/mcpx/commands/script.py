"""A local script as a tool (SRC-4, SEC-3): its keys, and what may stand in them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar

from mcpx.commands.work import Bench, Work
from mcpx.model.kinds import IN_FOLDER, Mistake, NonEmpty, Seconds, Size

_DECIDES = re.compile(
    r"PATH|LD_\w+|IFS|ENV|BASH_ENV|NODE_OPTIONS|NODE_PATH|PYTHON\w+|PERL5?\w+|RUBY\w+"
)
"""Variables that decide which code is run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The program of a script command; `{name}` stands for an argument."""

    type: ClassVar[str] = "script"

    interpreter: NonEmpty | None = None
    """Program that runs it (`python3`, `bash`, `node`, …); absent: the script itself is run."""
    path: NonEmpty = field(metadata=IN_FOLDER)
    """The script, in one of `global.script_paths`; relative to the config's folder in the file,
    absolute here."""
    args: tuple[str, ...] = field(default=(), repr=False)
    """Its arguments, one element each, never parsed by a shell. An element without a value drops
    out; `{name}` alone is one element for each item of a list; `{*}` is all arguments as JSON,
    here, in `env` and in `stdin`."""
    allow_dashes: bool = False
    """Let a text begin with `-` where nothing stands before it: for a script that takes no options.
    Behind a literal `--` any text may."""
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Its environment, beside the small one every child gets; a variable without a value is not
    set."""
    stdin: str | None = None
    """What it reads on standard input; absent: nothing."""
    cwd: str = field(default=".", metadata=IN_FOLDER)
    """Working folder; relative to the config's folder in the file, absolute here. That folder where
    it says nothing."""
    timeout: Seconds = 30.0
    """Seconds it may take, waiting included; `global.default_timeout` where it says nothing."""
    result: str | None = None
    """What of its JSON output is given to the caller: a JMESPath expression; absent: all of it."""
    max_output: Size = 2**20
    """Most output taken, in bytes; one that prints more is ended."""
    concurrency: Size = 4
    """How many of it run at a time; further calls wait."""
    max_memory: Size = 4 * 2**30
    """Most memory for the data of each of its processes, in bytes."""
    max_file: Size = 2**30
    """Largest file it may write, in bytes."""
    writable: tuple[str, ...] | None = field(default=None, metadata=IN_FOLDER)
    """The only folders it may write in, beside a temporary one of its own (Landlock or bubblewrap;
    without either it is not run); absent: it may write wherever the gateway may."""

    @property
    def reads_only(self) -> bool:
        return False

    def mistakes(self, parameters: Mapping[str, bool] | None) -> Iterator[Mistake]:
        from mcpx.commands.scripts.arguments import Template, is_option, unknown

        args = [Template.parse(text) for text in self.args]
        texts: list[tuple[Template, tuple[str | int, ...]]] = [
            (one, ("args", i)) for i, one in enumerate(args)
        ]
        texts += [(Template.parse(text), ("env", name)) for name, text in self.env.items()]
        texts += [(Template.parse(self.stdin), ("stdin",))] if self.stdin is not None else []
        known = ", ".join(parameters or ()) or "none"
        for template, path in texts:
            for name in unknown(template, parameters):
                hint = f"its parameters: {known}; write {{{{{name}}}}} for the text {{{name}}}"
                yield Mistake(f"no parameter named {name!r}", path, hint)
            if path[0] == "env" and template.names and _DECIDES.fullmatch(str(path[1])):
                yield Mistake(
                    "a caller must not decide which code is run: no placeholder here", path
                )
        optional = {name for name, may in (parameters or {}).items() if may}
        for index, (before, template) in enumerate(pairwise(args), 1):
            option = before.literal or ""
            if template.alone in optional and is_option(option):
                hint = (
                    f"write '{option}={{{template.alone}}}' as one element, or make the "
                    "parameter required"
                )
                what = f"without a value for '{template.alone}', '{option}' would stand alone"
                yield Mistake(what, ("args", index), hint)
        places = [("interpreter", self.interpreter), ("path", self.path), ("cwd", self.cwd)]
        for key, text in places:
            if text is not None and Template.parse(text).names:
                yield Mistake(
                    "no placeholder may stand here",
                    (key,),
                    "arguments go into 'args', 'env' and 'stdin'",
                )
        yield from self._impossible()
        if self.result is not None:
            import jmespath
            import jmespath.exceptions

            try:
                jmespath.compile(self.result)
            except jmespath.exceptions.JMESPathError as error:
                why = " ".join(str(error).split())
                yield Mistake("not a JMESPath expression", ("result",), why[:200])

    def _impossible(self) -> Iterator[Mistake]:
        """What no program can be given."""
        for name in self.env:
            if not name or "=" in name or "\0" in name:
                yield Mistake("not a possible variable name", ("env", name), at="key")
        texts: list[tuple[str | None, tuple[str | int, ...]]] = [
            *((text, ("env", name)) for name, text in self.env.items()),
            *((text, ("args", index)) for index, text in enumerate(self.args)),
            *((text, ("writable", index)) for index, text in enumerate(self.writable or ())),
            *((getattr(self, key), (key,)) for key in ("interpreter", "path", "cwd")),
        ]
        for text, path in texts:
            if "\0" in (text or ""):
                yield Mistake("holds a NUL character", path)

    def prepare(self, bench: Bench) -> Work:
        from mcpx.commands.scripts.running import (
            Scripts,
        )  # nobody starts processes who calls no script

        return Scripts(self, bench)
