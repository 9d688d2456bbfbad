"""An ASGI app that has its requests answered by an app in another process: `clutch serve relay:app`.

The header `x-relay` of a request, which the other app does not see, names the abstract Unix socket that the other
process listens at. There each request is one connection: its scope comes first, and then, as the other side asks,
`receive` and `send` are called. All messages are pickled dicts behind their length in four bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import socket
from collections.abc import Awaitable, Callable
from typing import Any

HEADER = b"x-relay"
Message = dict[str, Any]


class RaisedElsewhere(Exception):
    """What the other app raised."""


Receive = Callable[[], Awaitable[Message]]


async def app(scope: Message, receive: Receive, send: Callable[[Message], Any]) -> None:  # noqa: C901 - one protocol
    if scope["type"] == "lifespan":
        raise NotImplementedError("the other app's lifespan is run by its own process")
    (name,) = (value.decode() for name, value in scope["headers"] if name == HEADER)
    link = socket.socket(socket.AF_UNIX)
    link.connect("\0" + name)  # uvloop takes no abstract names
    reader, writer = await asyncio.open_unix_connection(sock=link)

    def write(message: Message) -> None:
        data = pickle.dumps(message)
        writer.write(len(data).to_bytes(4) + data)

    async def answer_receive() -> None:
        write({"type": "received", "message": await receive()})

    async def answer_send(message: Message, nr: int) -> None:
        error = None
        try:
            await send(message)
        except Exception as raised:
            error = repr(raised)
        write({"type": "sent", "nr": nr, "error": error})

    headers = [(name, value) for name, value in scope["headers"] if name != HEADER]
    kept = {name: value for name, value in scope.items() if name != "state"}
    write({"type": "scope", "scope": {**kept, "headers": headers}})
    running: set[asyncio.Task[None]] = set()
    try:
        while True:
            asked = pickle.loads(await reader.readexactly(int.from_bytes(await reader.readexactly(4))))
            if asked["type"] == "end":
                if asked["error"] is not None:
                    raise RaisedElsewhere(asked["error"])
                return
            answer = answer_receive() if asked["type"] == "receive" else answer_send(asked["message"], asked["nr"])
            running.add(task := asyncio.create_task(answer))
            task.add_done_callback(running.discard)
    except (asyncio.IncompleteReadError, ConnectionError):
        raise RaisedElsewhere("the other process hung up") from None
    finally:
        for task in running:
            task.cancel()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
