"""`mcpx call`: call a tool and print its result."""

import argparse

from mcpx.cli.where import seconds, use_options

EPILOG = """\
  mcpx call fs.read_file path=notes.txt head=5      values become what the tool's schema wants
  mcpx call shop.order items:='[{"id": 1}]'         := is JSON
  mcpx call mail.send body=@letter.txt to=a to=b    @ reads a file (@- stdin, @@ is a plain @); twice is a list
  mcpx call fs.read_file '{"path": "notes.txt"}'    all arguments at once; - reads them from standard input
  mcpx call fs.read_file --json '{"path": "x"}'     --json prints the raw result

Ctrl-C cancels the call at its server. Exit codes: 0 done, 1 the tool says that it failed, 2 no such tool or wrong
arguments, 4 its server is down, 5 somebody has to sign in, 6 refused or waits for approval, 124 took too long."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tool", metavar="SERVER.TOOL", help="the tool; its public name does, too")
    parser.add_argument(
        "arguments", metavar="key=value", nargs="*", help="its arguments; see below"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="save an image, audio or other bytes; else the text"
    )
    parser.add_argument(
        "--timeout", metavar="S", type=seconds, help="give up after so many seconds"
    )
    parser.add_argument(
        "--jmespath", metavar="EXPR", help="print what this expression finds in the result"
    )
    use_options(parser)


def run(options: argparse.Namespace) -> int:
    from mcpx.cli.calling import call

    return call(options)
