"""The floor behind Starlette and uvicorn (httptools, uvloop): what an HTTP front costs that is not
written by hand.

python starlette_floor.py CONFIG.json --era older --port 9100
"""

import asyncio
import sys
from pathlib import Path

import orjson
import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

sys.path.insert(0, str(Path(__file__).parents[2]))
from bench.relays.floor import Json, Relay


async def main(servers: dict[str, Json], era: str, port: int) -> None:
    relay = Relay(era)
    await relay.connect(servers)

    async def endpoint(request: Request) -> Response:
        message = orjson.loads(await request.body())
        if "id" not in message:
            return Response(status_code=202)
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        relay.asked(message, answer.set_result)
        return Response(orjson.dumps(await answer), media_type="application/json")

    app = Starlette(routes=[Route("/mcp", endpoint, methods=["POST"])])
    options = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=port,
        log_level="error",
        http="httptools",
        access_log=False,
        lifespan="off",
    )
    await uvicorn.Server(options).serve()


if __name__ == "__main__":
    options = dict(zip(sys.argv[2::2], sys.argv[3::2], strict=True))
    entries = orjson.loads(Path(sys.argv[1]).read_bytes())["mcpServers"]
    uvloop.run(main(entries, options["--era"], int(options["--port"])))
