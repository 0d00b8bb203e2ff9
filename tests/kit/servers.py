"""Entries of `mcp_servers` for the server programs of the tests."""

from kit.process import FIXTURES

SHOP_SERVER = str(FIXTURES / "shop_server.py")
"""A program with six tools over stdio."""
