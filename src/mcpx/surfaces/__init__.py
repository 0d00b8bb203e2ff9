"""What a client is shown: the same catalog, in one of several ways."""
