"""Protocol extensions between clients and servers (EXT-1): an allow list, and errors for results
outside of it.

A server may use every extension that a request declares. The gateway therefore declares only
extensions whose return traffic it routes. All other extensions of a client, tasks included, stop
here.
"""

from collections.abc import Mapping
from typing import Any

from mcpx.model.call import Json, as_object
from mcpx.model.errors import SERVER_GARBAGE, Unavailable

FORWARDED_EXTENSIONS = frozenset({"io.modelcontextprotocol/ui"})
"""Extensions that clients may declare to servers through the gateway, and that the gateway may
announce to clients."""

_LISTS = ("extensions", "experimental")
"""Capabilities that are objects with the identifier of an extension as each key."""
_TASKS = "tasks"
"""The capability for tasks of revision 2025-11-25."""
_FILTERED = frozenset((*_LISTS, _TASKS))


def forwarded_capabilities(capabilities: Mapping[str, Any]) -> Mapping[str, Any]:
    """The capabilities of a client that servers receive."""
    if _FILTERED.isdisjoint(capabilities):
        return capabilities
    forwarded = {name: value for name, value in capabilities.items() if name not in _FILTERED}
    for name in _LISTS:
        declared = as_object(capabilities.get(name))
        allowed = {key: value for key, value in declared.items() if key in FORWARDED_EXTENSIONS}
        if allowed:
            forwarded[name] = allowed
    return forwarded


def without_task(params: Json) -> Json:
    """Parameters of a tool call without the request for a task (2025-11-25). The specification
    tells receivers that do not declare tasks to ignore it."""
    if "task" not in params:
        return params
    return {name: value for name, value in params.items() if name != "task"}


def is_task(method: str, result: Json) -> bool:
    """Whether a result is the handle of a task, of either generation (SEP-2663 or SEP-1686)."""
    if method != "tools/call":
        return False
    if result.get("resultType") == "task":
        return True
    return "content" not in result and "taskId" in as_object(result.get("task"))


def task_refused(server: str) -> Unavailable:
    """The error for a call whose result is a task."""
    reason = (
        "the call was made, but the server returned a task instead of a result, and mcpx does not "
        "support tasks. "
        "The server may still be working on the task. Check its effect before you repeat the "
        "call, and make the "
        "server return results directly"
    )
    return Unavailable(server, SERVER_GARBAGE, reason)
