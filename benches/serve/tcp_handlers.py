"""The handlers that Clutch serves over TCP: the plain servers' work, without their accept loops."""

from __future__ import annotations

import asyncio
import socket

from benches.serve.plain_tcp import ANSWER, CHUNK_BYTES, answer_all


def handler(conn: socket.socket) -> None:
    """Blocking: one connection until it ends."""
    answer_all(conn)


async def async_handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The same as a coroutine."""
    while await reader.read(CHUNK_BYTES):
        writer.write(ANSWER)
        await writer.drain()
