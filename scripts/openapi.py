"""Writes the document of the admin API to `web/openapi.json`, which the typed client is made of.

uv run python scripts/openapi.py [--check]
"""

import json
import sys
from pathlib import Path
from typing import Any, cast

from mcpx.admin import application

TARGET = Path(__file__).parent.parent / "web" / "openapi.json"


def main() -> int:
    document = application.make(cast(Any, None)).openapi()
    document["info"]["version"] = "0"  # a release changes no client
    text = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    if "--check" in sys.argv[1:]:
        if not TARGET.exists() or TARGET.read_text(encoding="utf-8") != text:
            sys.stderr.write(
                "web/openapi.json is not what the API says: run scripts/openapi.py, then build "
                "web/\n"
            )
            return 1
        return 0
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
