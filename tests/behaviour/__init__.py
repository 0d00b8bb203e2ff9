"""What users are promised, tried through the real program."""
