"""`hello world` for every chunk: as handlers for Clutch, and as the servers that people write by hand.

`python -m clutch.lab.samples.tcp MODEL PORT` serves by one of MODELS: a thread for each connection; one event loop;
four processes that wait in accept on one listener.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
from collections.abc import Callable

ANSWER = b"hello world\n"
CHUNK_BYTES = 65_536
PROCESSES = 4


def handler(connection: socket.socket) -> None:
    """Answer each chunk until the client has sent its last."""
    while connection.recv(CHUNK_BYTES):
        connection.sendall(ANSWER)


async def async_handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The same as a coroutine."""
    while await reader.read(CHUNK_BYTES):
        writer.write(ANSWER)
        await writer.drain()


def by_thread(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer_and_close, args=(connection,), daemon=True).start()


def by_process(listener: socket.socket) -> None:
    children = [pid for _ in range(PROCESSES) if (pid := forked(listener))]
    for pid in children:
        os.waitpid(pid, 0)


def forked(listener: socket.socket) -> int:
    """The pid of a child that accepts and answers, one connection after another, and never returns."""
    if pid := os.fork():
        return pid
    while True:
        connection, _ = listener.accept()
        answer_and_close(connection)


def answer_and_close(connection: socket.socket) -> None:
    with connection:
        handler(connection)


def by_coroutine(listener: socket.socket) -> None:
    asyncio.run(serve(listener))


def by_coroutine_on_uvloop(listener: socket.socket) -> None:
    import uvloop

    uvloop.run(serve(listener))


async def serve(listener: socket.socket) -> None:
    server = await asyncio.start_server(answer_stream, sock=listener)
    await server.serve_forever()


async def answer_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await async_handler(reader, writer)
    writer.close()


MODELS: dict[str, Callable[[socket.socket], None]] = {
    "thread": by_thread,
    "asyncio": by_coroutine,
    "uvloop": by_coroutine_on_uvloop,
    "process": by_process,
}


def main() -> None:
    model, port = sys.argv[1], int(sys.argv[2])
    with socket.create_server(("127.0.0.1", port), backlog=128) as listener:
        MODELS[model](listener)


if __name__ == "__main__":
    main()
