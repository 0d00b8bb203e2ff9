"""`mcpx completion`: completion for bash, zsh, fish or PowerShell."""

import argparse

EPILOG = """\
  bash         in ~/.bashrc:  eval "$(mcpx completion bash)"
  zsh          in ~/.zshrc, below compinit:  eval "$(mcpx completion zsh)"
  fish         mcpx completion fish > ~/.config/fish/completions/mcpx.fish
  PowerShell   in $PROFILE:  mcpx completion powershell | Out-String | Invoke-Expression

Commands, options, files, servers, tools and their arguments are completed; no server is started for it."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish", "powershell"), help="the shell")


def run(options: argparse.Namespace) -> int:
    from mcpx.cli.completion import completion

    return completion(options.shell)
