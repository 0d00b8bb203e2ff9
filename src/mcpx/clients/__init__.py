"""Client programs: what to put where so that they use this gateway."""
