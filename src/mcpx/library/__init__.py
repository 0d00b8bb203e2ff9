"""mcpx inside a Python program (RUN-7): `from mcpx import Gateway`.

The same catalog, names, rules, limits, audit trail and formats as the gateway that is served,
without a port and without a process of its own. Public is what `mcpx` exports; everything else may
change.
"""
