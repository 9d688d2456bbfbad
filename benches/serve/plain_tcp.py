"""The plain servers of scenario S3: "hello world" for every chunk, by thread, by coroutine, by process.

`python -m benches.serve.plain_tcp MODEL PORT`, with one of the names in MODELS. They are what people write by hand:
a thread for each connection; one event loop; four processes that wait in accept on one listener.
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


def answer_all(conn: socket.socket) -> None:
    """Answer each chunk until the client has sent its last."""
    while conn.recv(CHUNK_BYTES):
        conn.sendall(ANSWER)


def _by_thread(listener: socket.socket) -> None:
    while True:
        conn, _ = listener.accept()
        threading.Thread(target=_answer_and_close, args=(conn,), daemon=True).start()


def _by_process(listener: socket.socket) -> None:
    children = [pid for _ in range(PROCESSES) if (pid := _forked(listener))]
    for pid in children:
        os.waitpid(pid, 0)


def _forked(listener: socket.socket) -> int:
    """The pid of a child that accepts and answers, one connection after another, and never returns."""
    if pid := os.fork():
        return pid
    while True:
        conn, _ = listener.accept()
        _answer_and_close(conn)


def _answer_and_close(conn: socket.socket) -> None:
    with conn:
        answer_all(conn)


def _by_coroutine(listener: socket.socket) -> None:
    asyncio.run(_serve(listener))


def _by_coroutine_on_uvloop(listener: socket.socket) -> None:
    import uvloop

    uvloop.run(_serve(listener))


async def _serve(listener: socket.socket) -> None:
    server = await asyncio.start_server(_answer_stream, sock=listener)
    await server.serve_forever()


async def _answer_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.read(CHUNK_BYTES):
        writer.write(ANSWER)
        await writer.drain()
    writer.close()


MODELS: dict[str, Callable[[socket.socket], None]] = {
    "thread": _by_thread,
    "asyncio": _by_coroutine,
    "uvloop": _by_coroutine_on_uvloop,
    "process": _by_process,
}


def main() -> None:
    model, port = sys.argv[1], int(sys.argv[2])
    with socket.create_server(("127.0.0.1", port), backlog=128) as listener:
        MODELS[model](listener)


if __name__ == "__main__":
    main()
