"""An app that runs its event loop inside of itself, as code with the habits of notebooks does."""

from __future__ import annotations

import asyncio
import urllib.parse
from typing import Any

import nest_asyncio

from support.rendezvous import meet_async


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return
    loop = asyncio.get_running_loop()
    if scope["path"] == "/nest":
        nest_asyncio.apply()
        port = int(dict(urllib.parse.parse_qsl(scope["query_string"].decode()))["port"])
        loop.run_until_complete(meet_async(port))
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": type(loop).__module__.encode()})
