"""What breaks first runs, looked for: one module a kind of trouble."""
