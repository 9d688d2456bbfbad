"""An app that tells which event loop it runs on."""

from __future__ import annotations

import asyncio
from typing import Any


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": type(asyncio.get_running_loop()).__module__.encode()})
