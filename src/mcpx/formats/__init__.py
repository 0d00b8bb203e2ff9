"""How schemas and values are written for a model to read: short, exact, bounded."""
