"""Prints the number of words of its first argument as JSON."""

import json
import sys

text = sys.argv[1] if len(sys.argv) > 1 else ""
print(json.dumps({"words": len(text.split()), "characters": len(text)}))  # noqa: T201
