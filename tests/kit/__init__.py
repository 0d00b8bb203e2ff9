"""Shared tools of the tests: clocks, conditions to wait for, processes, gateways, and test servers.

The modules `everything_server*` are one program that runs outside of this package. Do not import them from tests.
"""
