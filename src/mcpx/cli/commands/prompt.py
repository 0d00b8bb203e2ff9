"""`mcpx prompt`: get a prompt; without one, list them."""

import argparse

from mcpx.cli.where import seconds, use_options

EPILOG = """\
  mcpx prompt                                 every prompt and its arguments
  mcpx prompt docs.review file=@main.py       filled in"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", metavar="NAME", nargs="?", help="the prompt: SERVER.PROMPT, or its public name"
    )
    parser.add_argument(
        "arguments", metavar="key=value", nargs="*", help="its arguments, as for mcpx call"
    )
    parser.add_argument(
        "--timeout", metavar="S", type=seconds, help="give up after so many seconds"
    )
    use_options(parser)


def run(options: argparse.Namespace) -> int:
    from mcpx.cli.offers import prompt

    return prompt(options)
