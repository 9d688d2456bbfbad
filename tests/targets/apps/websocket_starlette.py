"""A WebSocket endpoint as Starlette's users write it."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket


async def chat(websocket: WebSocket) -> None:
    await websocket.accept()
    async for text in websocket.iter_text():
        if text == "bye":
            break
        await websocket.send_text(f"{websocket.path_params['name']}: {text}")
    await websocket.close()


app = Starlette(routes=[WebSocketRoute("/chat/{name}", chat)])
