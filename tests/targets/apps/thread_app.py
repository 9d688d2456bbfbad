"""An app with a thread of its own, as exporters start them: each answer is how often it has had its turn."""

from __future__ import annotations

import threading
import time
from typing import Any

turns = 0


def have_turns() -> None:
    global turns
    while True:
        time.sleep(0.001)
        turns += 1


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        await receive()
        threading.Thread(target=have_turns, daemon=True).start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    for _ in range(5_000):  # as long as a framework takes
        pass
    body = b"%d" % turns
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})
