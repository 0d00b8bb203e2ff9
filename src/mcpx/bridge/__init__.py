"""Between a client over stdio and the gateway that all clients of a configuration share: a small
process that imports no gateway, knows no tool, and outlives every gateway it talks to."""
