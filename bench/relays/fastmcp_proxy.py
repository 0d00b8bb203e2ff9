# pyright: basic, reportMissingImports=false
"""A peer: FastMCP's documented proxy over a config with many servers, with JSON replies.

python fastmcp_proxy.py CONFIG.json [--port 9100]
"""

import json
import sys
from pathlib import Path

from fastmcp.server import create_proxy

if __name__ == "__main__":
    proxy = create_proxy(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), name="bench")
    if "--port" not in sys.argv:
        proxy.run(transport="stdio", show_banner=False, log_level="ERROR")
    else:
        proxy.run(
            transport="http",
            host="127.0.0.1",
            port=int(sys.argv[3]),
            path="/mcp",
            json_response=True,
            show_banner=False,
            log_level="ERROR",
            uvicorn_config={"access_log": False},
        )
