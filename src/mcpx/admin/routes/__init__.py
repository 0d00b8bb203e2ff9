"""What the API can do: one module per subject, each with a `router`; found by the names of their
files."""
