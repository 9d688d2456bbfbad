"""An app that answers before it has read the body: at once, or after its first part."""

from __future__ import annotations

from typing import Any

BODY = b'{"error": "payment required"}'


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return
    if scope["path"] == "/after-a-part":
        await receive()
    headers = [(b"content-length", str(len(BODY)).encode())]
    await send({"type": "http.response.start", "status": 402, "headers": headers})
    await send({"type": "http.response.body", "body": BODY})
