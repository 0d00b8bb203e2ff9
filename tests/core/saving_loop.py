"""Saves a configuration over and over, for a test that kills it: `saving_loop.py FILE STATE`.

For each line on standard input a new process begins to save, and its number is told; nothing is
loaded anew for it, so that most of its life is saving. Every text is made so that it can be known
whole.
"""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

from mcpx.config import Config, editing, load
from mcpx.config.edits import SetFields, Where
from mcpx.core.gateway import Gateway
from mcpx.core.store import ConfigStore

LOADED = (editing,)


async def save(path: Path, state: Path) -> None:
    def read(texts: Any = None) -> Config:
        return load(path, {}, texts=texts)

    gateway = Gateway(read(), {}, None)
    store = ConfigStore(gateway, read, lambda config: None, where=Where(path, {}))
    store.keep_history(state)
    while True:
        fields = {"description": f"<{time.time_ns()}>" * 200}
        await store.commit(
            SetFields("mcp_servers", "a", fields), if_match=None, author="loop", via="api"
        )


def main(path: Path, state: Path) -> None:
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            asyncio.run(save(path, state))
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()
        os.waitpid(child, 0)
        sys.stdout.write("ended\n")
        sys.stdout.flush()


main(Path(sys.argv[1]), Path(sys.argv[2]))
