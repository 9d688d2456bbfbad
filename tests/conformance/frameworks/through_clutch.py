"""A plugin of pytest that puts a real server between the in-process clients of frameworks' tests and their apps.

`Through(app)` is an ASGI app: it makes a real HTTP request or WebSocket of the scope and the messages that it is given,
and sends it to `clutch serve relay:app`. The relay hands it back by a Unix socket, so that the app runs here, where the
test looks at it, but with the scope, the `receive` and the `send` that the server made. What comes out of the server
becomes the messages for the client of the test. Lifespans are not relayed.

$FRAMEWORKS_SERVER is the server's address, `127.0.0.1:8000`.
"""

from __future__ import annotations

import os
import pickle
import sys
import urllib.parse
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import h11
import wsproto
from anyio.abc import ByteStream
from anyio.streams.buffered import BufferedByteReceiveStream
from wsproto import events
from wsproto.frame_protocol import CloseReason

HEADER = b"x-relay"
HOST, _, PORT = os.environ["FRAMEWORKS_SERVER"].rpartition(":")
WAIT_SECONDS = 30
GRACE_SECONDS = 1
"""For an app whose client has left, until it is cancelled."""
READ_BYTES = 65536

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

OF_THE_CLIENT = "client", "server", "scheme", "root_path", "state", "app"
"""Of a scope: what tests choose freely and a connection of this machine cannot have."""
OF_THE_CLIENT_OF_HTTP = {b"host", b"transfer-encoding", b"connection", b"upgrade"}
"""Headers that a real client adds to those of the test."""
OF_THE_SERVER = {b"date", b"server", b"transfer-encoding", b"connection", b"content-length"}
"""Headers that a server adds to those of the app."""


class Through:
    """An app behind a real server."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        await Exchange(self.app, scope, receive, send).run()


class RefusedByServer(Exception):
    """The request did not reach the app."""


class Exchange:
    """One request or WebSocket, on both of its sides."""

    def __init__(self, app: Any, scope: Message, receive: Receive, send: Send) -> None:
        self.app, self.scope = app, scope
        self.name = f"relay-{uuid.uuid4()}"
        self.receive, self.send = receive, send
        self.error: BaseException | None = None
        self.start: Message = {}
        """The head that the app sent."""
        self.closed: Message = {}
        """How the app closed a WebSocket."""
        self.has_begun = False
        self.is_over = anyio.Event()
        """The app has returned."""
        self.has_ended = anyio.Event()
        self.life = anyio.CancelScope(shield=True)

    async def run(self) -> None:
        """Raises what the app raised, as it would without a server, even if the client has given up meanwhile."""
        try:
            await self.run_both()
        except anyio.get_cancelled_exc_class():
            if not isinstance(self.error, Exception):
                raise
        if self.error is not None:
            raise self.error

    async def run_both(self) -> None:
        """A test's client that gives up cancels this: the server sees it leave, and the app is told by the server."""
        async with await anyio.connect_tcp(HOST, int(PORT)) as stream, anyio.create_task_group() as group:
            group.start_soon(self.last, stream)
            try:
                await self.has_ended.wait()
            except anyio.get_cancelled_exc_class():
                with anyio.CancelScope(shield=True):
                    if self.scope["type"] == "websocket":  # what it has sent is on the way
                        with anyio.move_on_after(GRACE_SECONDS):
                            await self.has_ended.wait()
                    await stream.aclose()
                    with anyio.move_on_after(GRACE_SECONDS):
                        await self.has_ended.wait()
                self.life.cancel()
                raise

    async def last(self, stream: ByteStream) -> None:
        with self.life:
            async with (
                await anyio.create_unix_listener("\0" + self.name) as listener,
                anyio.create_task_group() as group,
            ):
                group.start_soon(self.host, listener)
                client = Http(self, stream) if self.scope["type"] == "http" else WebSocket(self, stream)
                await client.run()
                if not self.has_begun:
                    self.error = RefusedByServer(f"{self.target!r}, {self.scope['headers']}: {client.status}")
                    self.is_over.set()
                with anyio.fail_after(WAIT_SECONDS):
                    await self.is_over.wait()
                group.cancel_scope.cancel()
        self.has_ended.set()

    # The app's side.

    async def host(self, listener: Any) -> None:
        async with await listener.accept() as stream:
            link = Link(stream)
            self.has_begun = True
            scope = (await link.read())["scope"]
            await self.host_app(link, scope)

    async def host_app(self, link: Link, scope: Message) -> None:
        scope.update({name: self.scope[name] for name in OF_THE_CLIENT if name in self.scope})
        extensions = self.scope.get("extensions") or {}
        if "http.response.debug" in extensions:
            scope["extensions"] = {**scope.get("extensions", {}), "http.response.debug": {}}
        scope["headers"] = self.headers_of(scope["headers"])

        async def send(message: Message) -> None:
            if message["type"] == "http.response.debug":
                await self.send(message)
                return
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                self.start = message
            elif message["type"] == "websocket.close":
                self.closed = message
            await link.send(message)

        error = None
        async with anyio.create_task_group() as group:
            group.start_soon(link.listen)
            try:
                await self.app(scope, link.receive, send)
            except BaseException as raised:
                error = raised
            with anyio.CancelScope(shield=True):
                await link.write({"type": "end", "error": None if error is None else repr(error)})
            group.cancel_scope.cancel()
        self.error = error
        self.is_over.set()

    def headers_of(self, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Those that came, in the order in which they were sent, without those that only a connection needs."""
        given = dict(self.scope["headers"])
        names = [name for name, _ in self.scope["headers"]]
        replaced = (b"connection", b"sec-websocket-key")
        kept = [(name, given.get(name, value) if name in replaced else value) for name, value in headers]
        kept = [(name, value) for name, value in kept if name in names or name not in OF_THE_CLIENT_OF_HTTP]
        return sorted(kept, key=lambda header: names.index(header[0]) if header[0] in names else len(names))

    # Both sides.

    @property
    def target(self) -> bytes:
        path = self.scope.get("raw_path") or urllib.parse.quote(self.scope["path"]).encode()
        query = self.scope.get("query_string", b"")
        return path + (b"?" + query if query else b"")

    def of_the_app(self, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        sent = {name.lower() for name, _ in self.start.get("headers", [])}
        return [(name, value) for name, value in headers if name in sent or name not in OF_THE_SERVER]


class Link:
    """The connection of the relay, by which its `receive` and `send` are called."""

    def __init__(self, stream: ByteStream) -> None:
        self.stream = stream
        self.buffered = BufferedByteReceiveStream(stream)
        self.received, self._received = anyio.create_memory_object_stream[Message](1)
        self.is_asked = False
        self.sends: dict[int, tuple[anyio.Event, list[str | None]]] = {}
        self.last_nr = 0
        self.writing = anyio.Lock()

    async def write(self, message: Message) -> None:
        data = pickle.dumps(message)
        async with self.writing:
            await self.stream.send(len(data).to_bytes(4, "big") + data)

    async def read(self) -> Message:
        size = int.from_bytes(await self.buffered.receive_exactly(4), "big")
        return pickle.loads(await self.buffered.receive_exactly(size))

    async def listen(self) -> None:
        while True:
            told = await self.read()
            if told["type"] == "received":
                await self.received.send(told["message"])
            else:
                event, errors = self.sends.pop(told["nr"])
                errors.append(told["error"])
                event.set()

    async def receive(self) -> Message:
        """One that is cancelled leaves its message to the next."""
        if not self.is_asked:
            self.is_asked = True
            await self.write({"type": "receive"})
        message = await self._received.receive()
        self.is_asked = False
        return message

    async def send(self, message: Message) -> None:
        nr = self.last_nr = self.last_nr + 1
        # Frameworks send views of bytes, too.
        plain = {name: bytes(value) if isinstance(value, memoryview) else value for name, value in message.items()}
        event, errors = self.sends[nr] = anyio.Event(), []
        with anyio.CancelScope(shield=True):
            await self.write({"type": "send", "message": plain, "nr": nr})
        await event.wait()
        if errors[0] is not None:
            raise RuntimeError(errors[0])


class Http:
    """The client of one request."""

    def __init__(self, exchange: Exchange, stream: ByteStream) -> None:
        self.exchange, self.stream = exchange, stream
        self.connection = h11.Connection(h11.CLIENT)
        self.status = 0

    async def run(self) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self.ask)
            await self.read()
            group.cancel_scope.cancel()

    async def ask(self) -> None:
        exchange = self.exchange
        headers = [(name, value) for name, value in exchange.scope["headers"] if name != b"connection"]
        names = {name for name, _ in headers}
        first = await exchange.receive()
        if b"host" not in names:
            headers.append((b"host", b"testserver"))
        if not names & {b"content-length", b"transfer-encoding"} and (first.get("body") or first.get("more_body")):
            headers.append((b"transfer-encoding", b"chunked"))
        headers += [(HEADER, exchange.name.encode()), (b"connection", b"close")]
        request = h11.Request(method=exchange.scope["method"], target=exchange.target, headers=headers)
        await self.stream.send(self.connection.send(request) or b"")
        message = first
        while message["type"] == "http.request":
            if message.get("body"):
                await self.stream.send(self.connection.send(h11.Data(data=message["body"])) or b"")
            if not message.get("more_body"):
                await self.stream.send(self.connection.send(h11.EndOfMessage()) or b"")
            message = await exchange.receive()
        await self.stream.aclose()

    async def next_event(self) -> Any:
        while True:
            event = self.connection.next_event()
            if event is not h11.NEED_DATA:
                return event
            try:
                data = await self.stream.receive(READ_BYTES)
            except (anyio.EndOfStream, anyio.ClosedResourceError):
                data = b""
            self.connection.receive_data(data)

    async def read(self) -> None:
        send = self.exchange.send
        while True:
            try:
                event = await self.next_event()
            except h11.RemoteProtocolError:
                return
            if isinstance(event, h11.Response):
                self.status = event.status_code
                if not self.exchange.start:
                    return
                headers = self.exchange.of_the_app(list(event.headers))
                await send({"type": "http.response.start", "status": event.status_code, "headers": headers})
            elif isinstance(event, h11.Data):
                await send({"type": "http.response.body", "body": bytes(event.data), "more_body": True})
            elif isinstance(event, h11.EndOfMessage):
                await send({"type": "http.response.body", "body": b""})
                return
            elif not isinstance(event, h11.InformationalResponse):
                return


class WebSocket:
    """The client of one WebSocket."""

    def __init__(self, exchange: Exchange, stream: ByteStream) -> None:
        self.exchange, self.stream = exchange, stream
        self.connection = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
        self.status = 101
        self.text = ""
        self.bytes = b""

    async def run(self) -> None:
        await self.exchange.receive()
        of_handshake = (b"key", b"version", b"protocol")
        made = {b"host", b"connection", b"upgrade", *(b"sec-websocket-" + name for name in of_handshake)}
        sent = dict(self.exchange.scope["headers"])
        headers = [(name, value) for name, value in self.exchange.scope["headers"] if name not in made]
        request = events.Request(
            host=sent.get(b"host", b"testserver").decode(),
            target=self.exchange.target.decode(),
            subprotocols=list(self.exchange.scope.get("subprotocols", [])),
            extra_headers=[*headers, (HEADER, self.exchange.name.encode())],
        )
        await self.stream.send(self.connection.send(request))
        async with anyio.create_task_group() as group:
            group.start_soon(self.ask)
            await self.read()
            group.cancel_scope.cancel()

    async def ask(self) -> None:
        while True:
            message = await self.exchange.receive()
            if message["type"] == "websocket.disconnect":
                code, reason = message.get("code", 1000), message.get("reason")
                event: Any = events.CloseConnection(code=code, reason=reason)
            elif message.get("text") is not None:
                event = events.TextMessage(data=message["text"])
            else:
                event = events.BytesMessage(data=message["bytes"])
            await self.write(event)

    async def write(self, event: Any) -> None:
        try:
            await self.stream.send(self.connection.send(event))
        except (wsproto.utilities.LocalProtocolError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            await anyio.sleep_forever()  # the other side has closed it

    async def read(self) -> None:
        is_open = True
        while is_open:
            try:
                data = await self.stream.receive(READ_BYTES)
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                return
            try:
                self.connection.receive_data(data)
                for event in self.connection.events():
                    is_open = await self.tell(event) and is_open
            except wsproto.utilities.RemoteProtocolError:
                return

    async def tell(self, event: Any) -> bool:  # noqa: C901 - one case for each event
        """Returns whether more may come."""
        exchange, send = self.exchange, self.exchange.send
        if isinstance(event, events.AcceptConnection):
            headers = [(bytes(name), bytes(value)) for name, value in event.extra_headers if name not in OF_THE_SERVER]
            await send({"type": "websocket.accept", "subprotocol": event.subprotocol, "headers": headers})
        elif isinstance(event, events.RejectConnection):
            self.status = event.status_code
            if not exchange.start:
                if exchange.closed:
                    await send(exchange.closed)
                return False
            headers = exchange.of_the_app([(bytes(name), bytes(value)) for name, value in event.headers])
            await send({"type": "websocket.http.response.start", "status": event.status_code, "headers": headers})
            if not event.has_body:
                await send({"type": "websocket.http.response.body", "body": b""})
                return False
        elif isinstance(event, events.RejectData) and exchange.start:
            more = not event.body_finished
            await send({"type": "websocket.http.response.body", "body": bytes(event.data), "more_body": more})
            return more
        elif isinstance(event, events.TextMessage):
            self.text += event.data
            if event.message_finished:
                text, self.text = self.text, ""
                await send({"type": "websocket.send", "text": text})
        elif isinstance(event, events.BytesMessage):
            self.bytes += bytes(event.data)
            if event.message_finished:
                data, self.bytes = self.bytes, b""
                await send({"type": "websocket.send", "bytes": data})
        elif isinstance(event, events.Ping):
            await self.write(event.response())
        elif isinstance(event, events.CloseConnection):
            if self.connection.state is wsproto.ConnectionState.REMOTE_CLOSING:
                await self.write(event.response())
            if exchange.closed:
                code = event.code if event.code is not CloseReason.NO_STATUS_RCVD else 1005
                await send({"type": "websocket.close", "code": int(code), "reason": event.reason or ""})
            return False
        return True


def patch_starlette() -> None:
    from starlette import testclient

    transport: Any = testclient._TestClientTransport
    made = transport.__init__

    def init(self: Any, app: Any, *arguments: Any, **more: Any) -> None:
        made(self, Through(app), *arguments, **more)

    transport.__init__ = init


def patch_blockbuster() -> None:
    """It finds calls that block a loop, of which the client in this process has some that are not the framework's."""
    import blockbuster

    blockbuster.BlockBuster.activate = lambda self: None
    blockbuster.BlockBuster.deactivate = lambda self: None


patch_starlette()
patch_blockbuster()


def pytest_collection_modifyitems() -> None:
    """Puts the server behind transports that the tests define themselves: those of MCP's SDK."""
    for module in list(sys.modules.values()):
        transport = vars(module).get("StreamingASGITransport")
        if transport is not None and not hasattr(transport, "is_through"):
            made = transport.__init__

            def init(self: Any, app: Any, *arguments: Any, _made: Any = made, **more: Any) -> None:
                _made(self, Through(app), *arguments, **more)

            transport.__init__, transport.is_through = init, True
