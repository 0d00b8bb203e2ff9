"""Configuration: text in, one frozen `Config` out, or every mistake at once with its place."""
