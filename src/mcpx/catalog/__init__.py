"""All offers of all servers as one immutable snapshot, and the public names they go by."""
