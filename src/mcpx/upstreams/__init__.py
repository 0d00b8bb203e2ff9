"""What stands behind the gateway: one `Upstream` per configured server, and the links it lends."""
