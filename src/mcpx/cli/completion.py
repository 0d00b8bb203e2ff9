"""`mcpx completion SHELL`: a script that has a shell ask `mcpx __complete` what may come next
(`completing`).

The scripts know nothing of mcpx but that question, so they need not change with it. bash from 3.2
on; those of bash, zsh and fish are tried in these shells, that of PowerShell was never run.
"""

import sys

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
        mcpx __complete powershell 2>$null | Where-Object { -not $_.StartsWith("`t") } | ForEach-Object {
            $value, $about = $_ -split "`t", 2
            $text = if ($value -match "[\s'`"``$;&|(){}]") { "'" + $value.Replace("'", "''") + "'" } else { $value }
            $tip = if ($about) { $about } else { $value }
            [System.Management.Automation.CompletionResult]::new($text, $value, 'ParameterValue', $tip)
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


def completion(shell: str) -> int:
    sys.stdout.write(SCRIPTS[shell])
    sys.stdout.flush()
    if sys.stdout.isatty():
        sys.stderr.write(f"\n# {HINTS[shell]}\n")
    return 0
