"""How a command ends, told to whoever started it. `mcpx --help` names them."""

DONE = 0
FAILED = 1
"""It could not be done."""
MISTAKE = 2
"""In the config, or on the command line."""
NOT_RUNNING = 3
"""No gateway runs on this config."""
PARTIAL = 4
"""Some servers are down."""
SIGN_IN = 5
"""Somebody has to sign in, or could not."""
WAITS = 6
"""Something waits for approval, or was refused by a rule."""
TIMED_OUT = 124
"""As `timeout` has it."""
INTERRUPTED = 130
"""By Ctrl-C, as shells have it."""


def code_if(condition: object, code: int) -> int:
    """The exit code of a command that is done apart from this condition."""
    if condition:
        return code
    return DONE


MEANINGS = {
    DONE: "done",
    FAILED: "could not be done",
    MISTAKE: "a mistake in the config or on the command line",
    NOT_RUNNING: "no gateway runs on this config",
    PARTIAL: "some servers are down",
    SIGN_IN: "somebody has to sign in",
    WAITS: "refused, hidden, or waits for approval",
    TIMED_OUT: "took too long",
    INTERRUPTED: "interrupted (Ctrl-C)",
}
