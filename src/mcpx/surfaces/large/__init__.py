"""Results too large to be shown whole: kept, previewed, and read piece by piece (SUR-11)."""
