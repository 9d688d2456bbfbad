"""Bodies without end, bodies that nobody reads, and uploads that wait for one another."""

from __future__ import annotations

import time

import h2.config
import h2.connection
import h2.events
import h2.exceptions

from benches.hostile.attack import Attack, Bounds, Target
from benches.hostile.clients import Crowd, answers, connect, flood, post, ticks

_CHUNK = b"10000\r\n" + b"x" * 65_536 + b"\r\n"


def endless_chunks(target: Target) -> str:
    """To an app that reads nothing."""
    sent = 0
    with Crowd(target.port, 20) as crowd:
        crowd.say(post("/sleep?20", "Transfer-Encoding: chunked"))
        for _ in ticks(target.seconds, 0.02):
            sent += crowd.say(_CHUNK)
        crowd.hear()
        return f"{sent / 1e6:.0f} MB taken in all; {crowd}"


def endless_chunks_read(target: Target) -> str:
    """To an app that reads on: bounded by body_max alone."""
    with Crowd(target.port, 4) as crowd:
        crowd.say(post("/read", "Transfer-Encoding: chunked"))
        for _ in ticks(target.seconds, 0.01):
            crowd.say(_CHUNK)
            crowd.hear()
        return str(crowd)


def endless_http2(target: Target) -> str:
    """Fifty streams at a time, as fast as their windows let."""
    endless = 1 << 30
    asked = _Uploads(target.port, "/sleep?20", count=50, size=endless)
    answered = asked.send(target.seconds)
    return f"{sum(endless - left for left in asked.left.values()) / 1e6:.2f} MB taken, {len(answered)} answered"


def uploads_over_one_connection(target: Target) -> str:
    """More than there are slots; no stream that waits may cost another its window."""
    count = 14
    answered = _Uploads(target.port, "/read", count, size=100_000).send(target.seconds)
    assert answered == [200] * count, f"{len(answered)} of {count} answered: {answered}"
    return f"{count} × 200"


class _Uploads:
    """Streams of one connection, each fed as far as its window and the connection's go."""

    def __init__(self, port: int, path: str, count: int, size: int) -> None:
        self._port = port
        self._state = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self._state.initiate_connection()
        self.left = {2 * nr + 1: size for nr in range(count)}
        for stream in self.left:
            fields = [(":method", "POST"), (":scheme", "http"), (":authority", "h"), (":path", path)]
            self._state.send_headers(stream, fields)

    def send(self, seconds: float) -> list[int]:
        """The statuses that came in this time, or until all came."""
        found: list[int] = []
        end = time.monotonic() + seconds
        with connect(self._port) as connection:
            connection.settimeout(0.2)
            while len(found) < len(self.left) and time.monotonic() < end:
                self._feed()
                connection.sendall(self._state.data_to_send())
                try:
                    if not (data := connection.recv(1 << 16)):
                        break
                except TimeoutError:
                    continue
                events = self._state.receive_data(data)
                heads = (event for event in events if isinstance(event, h2.events.ResponseReceived))
                found += [int(dict(event.headers)[":status"]) for event in heads]
        return found

    def _feed(self) -> None:
        """The newest first, which wait for a slot: what they take, those that run must not miss."""
        for stream, left in reversed(list(self.left.items())):
            while left and (room := self._room(stream, left)) > 0:
                left -= room
                self._state.send_data(stream, bytes(room), end_stream=not left)
            self.left[stream] = left

    def _room(self, stream: int, left: int) -> int:
        """None where the server has ended the stream."""
        try:
            return min(self._state.local_flow_control_window(stream), self._state.max_outbound_frame_size, left)
        except h2.exceptions.ProtocolError:
            return 0


def unread_body(target: Target) -> str:
    """An app answers without reading and works on: the client has its answer, whether or not it goes on sending."""
    with connect(target.port) as connection:
        connection.sendall(post("/background?7", "Content-Length: 20000000"))
        began = time.monotonic()
        sent = flood(connection, bytes(200_000), target.seconds, 20_000_000)
        found = answers(connection, target.seconds)
        took = time.monotonic() - began
        assert found == [200] and took < 4, f"{found} after {took:.1f} s"
        return f"{found} after {took:.1f} s, {sent / 1e6:.1f} MB taken"


def expectations(target: Target) -> str:
    """Clients that wait for 100 and never send."""
    with Crowd(target.port, 200) as crowd:
        crowd.say(post("/read", "Content-Length: 1000000", "Expect: 100-continue"))
        crowd.wait_closed(target.seconds)
        return str(crowd)


ATTACKS = [
    Attack("endless bodies, unread", endless_chunks, Bounds(dispatcher_mb=64, workers_mb=120)),
    Attack("endless bodies, read", endless_chunks_read, options={"body_max": "20MB"}, quick=True),
    Attack("endless bodies, HTTP/2", endless_http2),
    Attack(
        "uploads over one HTTP/2 connection",
        uploads_over_one_connection,
        app="benches.hostile.apps:wsgi",
        flags=("-w", "1", "-k", "gthread", "--threads", "2"),
        quick=True,
    ),
    Attack("a body that is not read", unread_body, seconds=10, quick=True),
    Attack("expectations", expectations, quick=True),
]
