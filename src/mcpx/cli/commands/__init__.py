"""One light module per command: its options, and how it is run. `mcpx.cli.table` lists them."""
