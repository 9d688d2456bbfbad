"""Apps that tell what they get of a head: `asgi` and `wsgi`."""

from __future__ import annotations

import json
import logging
from typing import Any

# As many apps do it, with uvicorn in mind.
logging.getLogger("uvicorn.access").addFilter(lambda record: "/health" not in record.getMessage())


async def asgi(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return
    told = {
        "path": scope["path"],
        "raw_path": scope["raw_path"].decode("latin-1"),
        "query": scope["query_string"].decode("latin-1"),
        "root_path": scope["root_path"],
        "headers": [name.decode() for name, _ in scope["headers"]],
    }
    body = json.dumps(told).encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


def wsgi(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    told = {"path": environ["PATH_INFO"], "query": environ["QUERY_STRING"], "root_path": environ["SCRIPT_NAME"]}
    told["headers"] = [name for name in environ if name.startswith("HTTP_")]
    start_response("200 OK", [])
    return [json.dumps(told).encode()]
