"""The commands a person types. Each imports what it needs when it runs: `--help` and `check` start
no gateway."""
