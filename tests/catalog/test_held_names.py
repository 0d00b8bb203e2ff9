"""NAM-1: a public name stays with the tool that clients know by it, also while its server is not
up."""

from catalog.test_catalog_names import shown, tools
from mcpx.catalog.catalog import Catalog
from mcpx.catalog.naming import Naming


def test_a_name_that_is_held_for_an_absent_tool_is_not_given_to_another() -> None:
    """NAM-1: clients that know the name would call the wrong tool."""
    held = {("tools", "echo"): ("two", "echo")}
    alone = Catalog.build([tools("one", "echo"), tools("two")], Naming(), held=held)
    assert shown(alone) == [("one", "echo", "one_echo")]
    both = Catalog.build([tools("one", "echo"), tools("two", "echo")], Naming(), held=held)
    assert shown(both) == [("one", "echo", "one_echo"), ("two", "echo", "echo")]
