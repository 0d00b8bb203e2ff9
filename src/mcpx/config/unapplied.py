"""Keys that a file may hold already and this version does nothing with: said, never passed over in silence.

The schema marks them (`NOT_APPLIED`); one warning names all that a configuration uses, and docs/configuration.md is
marked from the same place. They are all of `server`.
"""

from dataclasses import fields

from mcpx.config.sections import FrontServer
from mcpx.config.tree import Tree, as_map


def unapplied(tree: Tree) -> list[str]:
    """At most one warning. `tree` is the native one, before anything was filled in."""
    front = as_map(tree.get("server")) or {}
    marked = [field.name for field in fields(FrontServer) if not field.metadata.get("applied", True)]
    found = [f"server.{key}" for key in marked if front.get(key) is not None]
    return [f"not applied by this version yet, without effect: {'; '.join(found)}"] if found else []
