"""A model's arguments against the schema of the tool they are for, before the call (SUR-9)."""
