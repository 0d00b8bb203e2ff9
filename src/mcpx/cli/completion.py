"""`mcpx completion SHELL`, and the question that its script asks: `mcpx __complete SHELL LINE`.

The scripts know nothing of mcpx but that question, so they need not change with it. bash is
supported from 3.2 on. The scripts of bash, zsh, and fish are tested in these shells; that of
PowerShell was never run.

An answer comes within a second and is never an error text. It starts no server and contains no
value of a config. Each line is one candidate, `VALUE<TAB>DESCRIPTION`. The last line begins with a
tab: `:files` (files fit, too), `:nospace` (the word continues behind the value), or `:`.
"""

import argparse
import contextlib
import json
import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from mcpx.base.files import private_folder, replace_private, require_private
from mcpx.cli.command_table import COMMANDS
from mcpx.cli.output import plain, say
from mcpx.cli.parsing import Parser, command_first, parser_of
from mcpx.cli.running import warn
from mcpx.cli.target import CONFIG_SUFFIXES, Target, folder_of, glance
from mcpx.model.call import Json
from mcpx.wire import channels

MAX_CANDIDATES = 500
MAX_TOOLS_AT_ONCE = 40
"""With more tools, the servers are completed first."""
MAX_ANSWER_BYTES = 16 << 20
ANSWER_SECONDS = 0.8
BASH_BREAKS = ":="
"""Where bash begins a new word. The text before it must not be repeated."""
NAME_KEYS = {"tools": "name", "prompts": "name", "resources": "uri", "templates": "uriTemplate"}

Candidate = tuple[str, str]
"""A value and its description."""

BASH = r"""# mcpx: completion for bash
_mcpx() {
  local IFS=$'\n' line directive=''
  COMPREPLY=()
  while IFS= read -r line; do
    case $line in
      $'\t'*) directive=${line#$'\t'} ;;
      *) COMPREPLY+=("${line%%$'\t'*}") ;;
    esac
  done < <("${COMP_WORDS[0]}" __complete bash "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
  case $directive in
    :files)
      compopt -o filenames 2>/dev/null
      COMPREPLY+=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"))
      ;;
    :nospace) compopt -o nospace 2>/dev/null ;;
  esac
}
complete -F _mcpx mcpx
"""

ZSH = r"""#compdef mcpx
# mcpx: completion for zsh
_mcpx() {
  local line directive=''
  local -a found shown
  while IFS= read -r line; do
    if [[ $line == $'\t'* ]]; then
      directive=${line#$'\t'}
    else
      found+=("${line%%$'\t'*}")
      shown+=("${line%%$'\t'*}${${line#*$'\t'}:+  -- ${line#*$'\t'}}")
    fi
  done < <("${words[1]}" __complete zsh "${(j: :)words[1,CURRENT-1]} $PREFIX" 2>/dev/null)
  if [[ $directive == ':nospace' ]]; then
    compadd -l -S '' -d shown -a found
  elif (( $#found )); then
    compadd -l -d shown -a found
  fi
  [[ $directive == ':files' ]] && _files
  return 0
}
if [[ ${funcstack[1]-} == _mcpx ]]; then
  _mcpx "$@"
elif (( $+functions[compdef] )); then
  compdef _mcpx mcpx
fi
"""

FISH = r"""# mcpx: completion for fish
function __mcpx_complete
    set -l words (commandline -opc)
    for line in ($words[1] __complete fish (commandline -cp | string collect) 2>/dev/null)
        if string match -q -- \t'*' $line
            test (string trim $line) = ':files'; and __fish_complete_path (commandline -ct)
        else
            echo $line
        end
    end
end
complete -c mcpx -f -a '(__mcpx_complete)'
"""

POWERSHELL = r"""# mcpx: completion for PowerShell
Register-ArgumentCompleter -Native -CommandName mcpx -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $line = $commandAst.ToString()
    if ($cursorPosition -gt $line.Length) { $line = $line.PadRight($cursorPosition) }
    $before = $env:MCPX_COMPLETE_LINE
    $env:MCPX_COMPLETE_LINE = $line
    try {
        mcpx __complete powershell 2>$null |
            Where-Object { -not $_.StartsWith("`t") } |
            ForEach-Object {
            $value, $about = $_ -split "`t", 2
            $text = $value
            if ($value -match "[\s'`"``$;&|(){}]") { $text = "'" + $value.Replace("'", "''") + "'" }
            $tip = if ($about) { $about } else { $value }
            $result = [System.Management.Automation.CompletionResult]
            $result::new($text, $value, 'ParameterValue', $tip)
        }
    } finally {
        $env:MCPX_COMPLETE_LINE = $before
    }
}
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH, "powershell": POWERSHELL}
HINTS = {
    "bash": 'put this line into ~/.bashrc: eval "$(mcpx completion bash)"',
    "zsh": 'put this line into ~/.zshrc, below compinit: eval "$(mcpx completion zsh)"',
    "fish": "keep it: mcpx completion fish > ~/.config/fish/completions/mcpx.fish",
    "powershell": (
        "put this line into $PROFILE: mcpx completion powershell | Out-String | Invoke-Expression"
    ),
}


def completion(options: argparse.Namespace) -> int:
    sys.stdout.write(SCRIPTS[options.shell])
    sys.stdout.flush()
    if sys.stdout.isatty():
        warn(f"\n# {HINTS[options.shell]}")
    return 0


def complete(arguments: Sequence[str]) -> int:
    with contextlib.suppress(Exception, SystemExit):
        shell, *lines = (*arguments, os.environ.get("MCPX_COMPLETE_LINE", ""))
        words, word, quote = split(lines[0])
        line = _Line(words[1:], word)
        found = list(line.candidates())
        _print(found, line.directive, word, quote, shell)
    return 0


def split(line: str) -> tuple[list[str], str, str]:
    """The words before the last one, the last one, and its open quote."""
    for quote in ("", "'", '"'):
        with contextlib.suppress(ValueError):
            *words, word = shlex.split(f"{line}\0{quote}")
            return words, word.removesuffix("\0"), quote
    return [], "", ""


def _print(found: Sequence[Candidate], directive: str, word: str, quote: str, shell: str) -> None:
    fitting = [each for each in found if each[0].startswith(word)]
    if word and not fitting:  # The user typed letters in another case.
        fitting = [each for each in found if each[0].lower().startswith(word.lower())]
    start = 0
    if shell == "bash" and not quote:
        start = max(word.rfind(c) + 1 for c in BASH_BREAKS)
    for value, about in list(dict.fromkeys(fitting))[:MAX_CANDIDATES]:
        spelled = value[start:]
        if not spelled or not value.isprintable():
            continue
        if shell == "bash":
            spelled = _quoted(spelled, quote)
        say(f"{spelled}\t{' '.join(plain(about).split())}")
    say(f"\t:{directive}")


def _quoted(value: str, quote: str) -> str:
    """The value as it would be typed: bash inserts it as it is, also within quotes."""
    if not quote:
        return re.sub(r"([^\w@%+=:,./-])", r"\\\1", value)
    if quote == "'":
        spelled = value.replace("'", "'\\''")
    else:  # A ! cannot be escaped within double quotes.
        spelled = re.sub(r'([$`"\\])', r"\\\1", value).replace("!", '"\\!"')
    # bash does not close a word that ends in a quote.
    if spelled.endswith(quote):
        spelled += quote
    return spelled


class _Line:
    """A command line whose last word is completed."""

    def __init__(self, words: Sequence[str], word: str) -> None:
        words = command_first(words)
        self._word = word
        self.directive = ""
        self._is_command = not words or words == ["help"]
        self._has_files = not words
        self._command = "serve"  # `mcpx CONFIG …` serves.
        if words and words[0] in COMMANDS:
            self._command, *words = words
        self._parser: Parser = parser_of(COMMANDS[self._command])
        self._given: dict[str, str] = {}
        """Values of options."""
        self._words: list[str] = []
        """Words that are no options."""
        self._pending: argparse.Action | None = None
        """The option whose value is completed."""
        for each in words:
            self._read(each)

    def _read(self, word: str) -> None:
        if self._pending is not None:
            self._given[self._pending.dest] = word
            self._pending = None
        elif word.startswith("-") and word != "-":
            name, has_value, value = word.partition("=")
            action = self._option(name)
            if action is None or action.nargs == 0:
                return
            if has_value:
                self._given[action.dest] = value
            else:
                self._pending = action
        elif word in self._parser.kinds:  # `import openapi …` has the options of `openapi`.
            self._parser = self._parser.kinds[word]
        else:
            self._words.append(word)

    def _option(self, name: str) -> argparse.Action | None:
        return next((each for each in self._parser.actions if name in each.option_strings), None)

    def candidates(self) -> Iterator[Candidate]:
        name, has_value, _ = self._word.partition("=")
        if self._pending is not None:
            yield from self._values(self._pending)
        elif self._word.startswith("--") and has_value:
            action = self._option(name)
            if action is not None:
                yield from ((f"{name}={value}", about) for value, about in self._values(action))
        elif self._word.startswith("-") and self._word != "-":
            for action in self._parser.actions:
                about = (action.help or "").replace("%(choices)s", "").strip()
                yield from ((option, about) for option in action.option_strings)
        elif self._is_command:
            yield from ((command.name, command.summary) for command in COMMANDS.values())
            yield "help", "This, or more about a command."
            if self._has_files and self._word:
                self.directive = "files"
        else:
            yield from self._positional()

    def _positional(self) -> Iterator[Candidate]:
        actions = [action for action in self._parser.actions if not action.option_strings]
        at = len(self._words)
        if self._parser.default_kind is not None and not at:
            first = self._parser.default_kind[1].actions[1]  # After `--help`.
            yield from self._values(first)
        if at < len(actions):
            yield from self._values(actions[at])
        elif actions and actions[-1].nargs in ("*", "+"):
            if actions[-1].dest == "words":  # Behind its subject, the config file.
                self.directive = "files"
            else:
                yield from self._values(actions[-1])

    def _values(self, action: argparse.Action) -> Iterator[Candidate]:
        yield from _plain(map(str, action.choices or ()))
        for kind in self._parser.completes.get(action.dest, "").split():
            yield from self._named(kind)

    def _named(self, kind: str) -> Iterator[Candidate]:
        match kind:
            case "files":
                self.directive = "files"
            case "overlays":
                yield from _plain(self._overlays())
            case "clients":
                yield from _clients()
            case "tools":
                yield from self._tools()
            case "arguments":
                yield from self._arguments()
            case "-" | "mcpx":
                yield kind, ""
            case _:
                for each in self._names.get(kind) or ():
                    yield (each, "") if isinstance(each, str) else (each[0], each[1])

    def _tools(self) -> Iterator[Candidate]:
        tools: list[Any] = self._names.get("tools") or []
        if len(tools) > MAX_TOOLS_AT_ONCE and "." not in self._word:
            self.directive = "nospace"
            names = [each[0].split(".") for each in tools]
            yield from _plain(dict.fromkeys(f"{server}." for server, *_ in names))
        else:
            yield from ((each[0], each[1]) for each in tools)

    def _arguments(self) -> Iterator[Candidate]:
        kind = {"call": "tools", "prompt": "prompts"}[self._command]
        offers = {name: arguments for name, _, arguments in self._names[kind]}
        known: Json = offers.get(self._words[0]) or {}
        key, has_value, _ = self._word.partition("=")
        if has_value:
            *_, values = known.get(key, ([],))
            yield from _plain(f"{key}={value}" for value in values)
            return
        self.directive = "nospace"
        given = {word.partition("=")[0].removesuffix(":") for word in self._words[1:]}
        for title in ("", "optional. "):
            for name, (is_needed, about, _) in known.items():
                if name not in given and is_needed is not bool(title):
                    yield f"{name}=", f"{title}{about}"

    def _overlays(self) -> list[str]:
        path = self._target.path
        if path is None:
            return []
        files = folder_of(path).iterdir()
        stems = [file.stem for file in files if file.suffix in CONFIG_SUFFIXES]
        return sorted({stem.rpartition(".")[2] for stem in stems if "." in stem.strip(".")})

    @cached_property
    def _target(self) -> Target:
        names = [self._given.get("config")]
        if self._command != "call":
            names += [word for word in self._words if word.endswith(CONFIG_SUFFIXES)]
        name = next((each for each in names if each and os.path.exists(each)), None)
        options = argparse.Namespace(config=name, config_file=None, env=self._given.get("env"))
        return Target(glance(options, os.environ), options)

    @cached_property
    def _names(self) -> Json:
        for source in (_names_of_gateway, _cached_names, _names_of_snapshots):
            with contextlib.suppress(Exception):
                names = source(self._target)
                if names:
                    return names
        return {}


def _plain(values: Iterable[str]) -> Iterator[Candidate]:
    return ((value, "") for value in values)


def _clients() -> list[Candidate]:
    """Ids and names of client programs, from their data file alone."""
    file = Path(__file__).parents[1] / "clients" / "programs.toml"
    pattern = r'^\[\[client\]\]\nid = "([^"]+)"\nname = "([^"]*)"'
    return re.findall(pattern, file.read_text(encoding="utf-8"), re.MULTILINE)


# Names of servers, tools, and arguments: of the running gateway, otherwise those of its last run


def _names_of_gateway(target: Target) -> Json | None:
    if target.channel is None or not channels.is_taken(target.channel):
        return None
    require_private(target.channel.parent)
    with channels.dial(target.channel, ANSWER_SECONDS) as connection:
        connection.settimeout(ANSWER_SECONDS)
        connection.sendall(b'{"do": "names"}\n')
        with connection.makefile("rb") as answers:
            answer = json.loads(answers.readline(MAX_ANSWER_BYTES))
    return answer.get("ok") and answer


def _cache_file(target: Target) -> Path | None:
    if target.channel is None:
        return None
    return target.state / "names" / f"{target.channel.stem}.json"


def _cached_names(target: Target) -> Json | None:
    """The names of the snapshots in one small file, if it is newer than its sources."""
    file = _cache_file(target)
    if file is None or target.path is None:
        return None
    sources = [target.path, target.state / "snapshots"]
    if target.path.is_dir():
        sources += target.path.iterdir()
    made = file.stat().st_mtime
    if any(each.stat().st_mtime > made for each in sources if each.exists()):
        return None
    return json.loads(file.read_bytes())


def _names_of_snapshots(target: Target) -> Json | None:
    """The names of the last run. They are kept in the cache file."""
    if target.path is None:
        return None
    from mcpx.commands.parameters import schema_of
    from mcpx.core.names import names_of
    from mcpx.upstreams.snapshot import Snapshots, identity_of, key_of

    config = target.load()
    snapshots = Snapshots(target.state / "snapshots")
    listed: dict[Any, list[tuple[str, str, Json]]] = {kind: [] for kind in NAME_KEYS}
    for command in config.commands:
        about = {"description": command.description, "inputSchema": schema_of(command.parameters)}
        listed["tools"].append(("commands", command.name, about))
    for server in config.mcp_servers:
        snapshot = snapshots.load(key_of(identity_of(server)))
        if snapshot is None or not server.enabled:
            continue
        for kind, definitions in snapshot.any_lists.items():
            rows = [(server.name, str(each.get(NAME_KEYS[kind])), each) for each in definitions]
            listed[kind] += rows
    names = names_of(config, listed)
    file = _cache_file(target)
    if file is not None and target.state.is_dir():  # The state folder is not made for this.
        with contextlib.suppress(OSError):
            private_folder(file.parent)
            replace_private(file, json.dumps(names).encode())
    return names
