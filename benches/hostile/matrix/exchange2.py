"""A connection of HTTP/2 whose fields nobody checks before they are sent."""

from __future__ import annotations

import contextlib
import socket

import h2.config
import h2.connection
import h2.events
import h2.exceptions

from benches.hostile.matrix.case import HOST
from benches.hostile.matrix.exchange import CANARY, connect
from benches.hostile.matrix.http2_cases import Case2

_CANARY = [(":method", "GET"), (":scheme", "http"), (":authority", HOST), (":path", CANARY)]


def unchecked() -> h2.connection.H2Connection:
    config = h2.config.H2Configuration(
        validate_outbound_headers=False, normalize_outbound_headers=False, header_encoding="latin-1"
    )
    return h2.connection.H2Connection(config)


def _encoded(fields: tuple[tuple[str, str], ...]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields]


def ask(port: int, source: str, case: Case2) -> tuple[list[int], bool]:
    """The statuses of the case's stream and of the canary's, and whether the canary or the connection ended."""
    state = unchecked()
    with connect(port, source) as connection:
        state.initiate_connection()
        state.send_headers(1, _encoded(case.fields), end_stream=not case.body and not case.trailers)
        if case.body:
            state.send_data(1, case.body, end_stream=not case.trailers)
        if case.trailers:
            state.send_headers(1, _encoded(case.trailers), end_stream=True)
        state.send_headers(3, _CANARY, end_stream=True)
        return _statuses(connection, state)


def _statuses(connection: socket.socket, state: h2.connection.H2Connection) -> tuple[list[int], bool]:
    """Until both streams have ended."""
    found: list[int] = []
    open_streams = {1, 3}
    with contextlib.suppress(ConnectionError, h2.exceptions.ProtocolError):
        connection.sendall(state.data_to_send())
        try:
            while open_streams and (data := connection.recv(1 << 16)):
                for event in state.receive_data(data):
                    if isinstance(event, h2.events.ResponseReceived):
                        found.append(int(dict(event.headers)[":status"]))
                    if isinstance(event, h2.events.StreamEnded | h2.events.StreamReset):
                        open_streams.discard(event.stream_id)
                connection.sendall(state.data_to_send())
        except TimeoutError:
            return found, False
    return found, True
