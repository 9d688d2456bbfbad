#!/usr/bin/env bash
# The route that FastAPI leaves in the scope of a request has the path of the router that declared it. The prefix by which
# `include_router` included that router is not in it, and a mounted app leaves no route at all. Starlette, on which FastAPI
# stands, leaves the Mount. What reads `scope["route"].path` to name requests (metrics, traces) takes two endpoints below
# different prefixes for one.
#
# Seen: fastapi 0.165.0 and starlette 1.10.0, CPython 3.11.7: /v1/items/3 and /v2/items/3 both have the route /items/{number};
# /files/x has none with FastAPI, and a Mount with Starlette.
#
# Fails if this changes.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check fastapi==0.165.0 starlette==1.10.0
told=$("$folder/env/bin/python" - <<'PROGRAM'
import asyncio

from fastapi import APIRouter, FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount


async def route_of(app, path):
    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        pass

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "", "headers": [],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2),
    }
    await app(scope, receive, send)
    route = scope.get("route")
    return type(route).__name__, getattr(route, "path", "without a path")


async def files(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


router = APIRouter()


@router.get("/items/{number}")
async def item(number: int) -> int:
    return number


app = FastAPI()
app.include_router(router, prefix="/v1")
app.include_router(router, prefix="/v2")
app.mount("/files", files)
plain = Starlette(routes=[Mount("/files", app=files)])
for server, path in ((app, "/v1/items/3"), (app, "/v2/items/3"), (app, "/files/x"), (plain, "/files/x")):
    print(type(server).__name__, path, *asyncio.run(route_of(server, path)))
PROGRAM
)
echo "$told"
expected="FastAPI /v1/items/3 APIRoute /items/{number}
FastAPI /v2/items/3 APIRoute /items/{number}
FastAPI /files/x NoneType without a path
Starlette /files/x Mount /files"
[[ $told == "$expected" ]] || { echo changed; exit 1; }
