"""The protocol as raw JSON: framings, carriers, peers and the rules of each revision. No gateway in
it."""
