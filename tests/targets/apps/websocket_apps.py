"""What the pools of test_websocket.py run: an ASGI app that does what the path of its WebSocket says."""

from __future__ import annotations

import asyncio
import contextlib
import time
import urllib.parse
from collections.abc import Awaitable, Callable
from typing import Any

from support import rendezvous

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

FLOOD_MESSAGES = 200
FLOOD_BYTES = 1 << 17
BLOCKED_SECONDS = 0.5


class Conversation:
    """One WebSocket, or one request, and the rendezvous that its query names."""

    def __init__(self, scope: Message, receive: Receive, send: Send) -> None:
        self.scope, self.receive, self.send = scope, receive, send
        query = dict(urllib.parse.parse_qsl(scope["query_string"].decode()))
        self.port = int(query.get("port", 0))

    async def meet(self, word: str) -> str:
        return await rendezvous.meet_async(self.port, word)

    async def accept(self, **more: Any) -> None:
        assert (await self.receive())["type"] == "websocket.connect"
        await self.send({"type": "websocket.accept", **more})

    async def echo(self) -> None:
        await self.accept()
        await self.echo_on()

    async def echo_on(self) -> None:
        while (message := await self.receive())["type"] == "websocket.receive":
            await self.send({**message, "type": "websocket.send"})

    async def told(self) -> None:
        """Tells the test how it ended."""
        await self.echo_until_told()

    async def echo_until_told(self) -> None:
        await self.accept()
        while (message := await self.receive())["type"] == "websocket.receive":
            await self.send({**message, "type": "websocket.send"})
        await self.meet(f"{message['code']} {message['reason']}".strip())

    async def late(self) -> None:
        """Sends after it was told that the client has gone."""
        await self.accept()
        while (await self.receive())["type"] != "websocket.disconnect":
            pass
        said = []
        for kind in ("send", "close"):
            try:
                await self.send({"type": f"websocket.{kind}", "text": "too late"})
            except OSError as error:
                said.append(f"{kind}:{type(error).__name__}")
        await self.meet(" ".join(said))

    async def choose(self) -> None:
        await self.accept(subprotocol=self.scope["subprotocols"][-1], headers=[(b"x-from-the-app", b"yes")])
        await self.send({"type": "websocket.send", "text": " ".join(self.scope["subprotocols"])})

    async def facts(self) -> None:
        await self.accept()
        scope = self.scope
        text = f"{scope['type']} {scope['scheme']} {scope['path']} {scope['http_version']} {'method' in scope}"
        text += f" {scope['extensions']}"
        await self.send({"type": "websocket.send", "text": text})

    async def refuse(self) -> None:
        await self.send({"type": "websocket.close", "code": 4000})

    async def refuse_by_errors(self) -> None:
        """As FastAPI refuses wrong parameters."""
        await self.send({"type": "websocket.close", "code": 1008, "reason": [{"type": "missing", "loc": ["query"]}]})

    async def refuse_as_lost(self) -> None:
        await self.send({"type": "websocket.close", "code": 1006, "reason": "x" * 124})

    async def deny(self) -> None:
        await self.receive()
        headers = [(b"content-type", b"text/plain"), (b"x-why", b"tired")]
        await self.send({"type": "websocket.http.response.start", "status": 418, "headers": headers})
        await self.send({"type": "websocket.http.response.body", "body": b"not ", "more_body": True})
        await self.send({"type": "websocket.http.response.body", "body": b"now"})

    async def close(self) -> None:
        await self.accept()
        await self.send({"type": "websocket.close", "code": 4321, "reason": "enough"})
        after = await self.receive()
        await self.meet(f"{after['type']} {after['code']}")

    async def return_early(self) -> None:
        await self.accept()

    async def return_at_once(self) -> None:
        pass

    async def raise_before(self) -> None:
        raise ValueError("told to raise")

    async def raise_after(self) -> None:
        await self.accept()
        raise ValueError("told to raise")

    async def silent(self) -> None:
        await self.meet("silent")

    async def hold(self) -> None:
        """Accepts, and then hears nothing."""
        await self.accept()
        await self.meet("accepted")

    async def misuse(self) -> None:
        said = []
        for message in (
            {"type": "websocket.send", "text": "too early"},
            {"type": "http.response.start", "status": 200},
            {"type": "websocket.accept"},
            {"type": "websocket.accept"},
            {"type": "websocket.send"},
            {"type": "websocket.close", "code": 1006},
            {"type": "websocket.close", "reason": "x" * 124},
            {"type": "websocket.close", "reason": ["x"]},
            {"type": "websocket.close"},
            {"type": "websocket.send", "text": "too late"},
        ):
            try:
                await self.send(message)
                said.append("ok")
            except RuntimeError:
                said.append("raised")
        await self.meet(" ".join(said))

    async def flood(self) -> None:
        """Sends until the client takes no more; tells how much that was; then sends the rest."""
        await self.accept()
        for nr in range(FLOOD_MESSAGES):
            sending = asyncio.ensure_future(self.send({"type": "websocket.send", "bytes": bytes(FLOOD_BYTES)}))
            done, _ = await asyncio.wait([sending], timeout=BLOCKED_SECONDS)
            if not done:
                await self.meet(f"blocked {nr}")
            await sending

    async def pour(self) -> None:
        """Sends whatever the client does, until it is said to have gone."""
        await self.accept()
        with contextlib.suppress(OSError):
            while True:
                await self.send({"type": "websocket.send", "bytes": bytes(FLOOD_BYTES)})
        await self.meet(str((await self.receive())["code"]))

    async def cpu(self) -> None:
        """Answers each message with the CPU seconds that its worker has taken so far."""
        await self.accept()
        while (await self.receive())["type"] == "websocket.receive":
            await self.send({"type": "websocket.send", "text": str(time.process_time())})

    async def patient(self) -> None:
        """Gives up each wait for a message at once, many times; then echoes."""
        await self.accept()
        for _ in range(100):
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.receive(), 0.0001)
        await self.send({"type": "websocket.send", "text": "now"})
        await self.echo_on()

    async def greet(self) -> None:
        """Speaks before its client, more than that takes at once, and closes behind it."""
        await self.accept()
        for nr in range(50):
            await self.send({"type": "websocket.send", "text": f"{nr} " + "x" * 50_000})
        await self.send({"type": "websocket.close", "code": 4001})

    async def count(self) -> None:
        """Hears nothing for as long as its test wants; then tells how much there was."""
        await self.accept()
        await self.meet("accepted")
        count = 0
        while (await self.receive()).get("text") != "end":
            count += 1
        await self.send({"type": "websocket.send", "text": str(count)})

    async def exit(self) -> None:
        """Raises, when it is told to, what ends a program."""
        await self.accept()
        await self.receive()
        raise SystemExit(3)

    async def events(self) -> None:
        """A stream of events, until the client is said to have gone."""
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await self.send({"type": "http.response.start", "status": 200, "headers": headers})
        await self.send({"type": "http.response.body", "body": b"data: first\n\n", "more_body": True})
        assert (await self.receive())["type"] == "http.request"
        told = await self.receive()
        body = f"data: {told['type']}\n\n".encode()
        await self.send({"type": "http.response.body", "body": body, "more_body": True})
        await self.send({"type": "http.response.body", "body": b"", "more_body": False})


async def app(scope: Message, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        raise NotImplementedError
    await getattr(Conversation(scope, receive, send), scope["path"].strip("/"))()
