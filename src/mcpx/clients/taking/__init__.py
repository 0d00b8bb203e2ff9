"""The servers of client programs taken over: read, told apart, made ready to be written into a
configuration."""
