"""The official conformance suite as the judge: server scenarios for the front, client ones for the
back."""
