"""Where tools and tests meet: a tool comes, says who it is, and stays until the test lets it go.

So a test knows that work is really running, and holds it there, without a clock. A tool that dies is seen as the end of
its connection; a test that ends lets everybody go.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
from types import TracebackType
from typing import Self

WAIT_SECONDS = 30.0
WORD_BYTES_MAX = 1 << 16


def is_readable(what: socket.socket) -> bool:
    """By poll: select takes no descriptor beyond 1023, and stores of jobs keep theirs open."""
    poll = select.poll()
    poll.register(what, select.POLLIN)
    return bool(poll.poll(0))


# In tools.


def meet(port: int, word: str = "") -> str:
    """Comes, waits, and returns the word with which the test lets it go."""
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rw") as lines:
        lines.write(f"{os.getpid()} {word}\n")
        lines.flush()
        return lines.readline().rstrip("\n")


def meet_without_yielding(port: int, word: str = "") -> str:
    """The same, holding the thread: no other greenlet or task of it runs meanwhile."""
    import ctypes

    address = socket.inet_aton("127.0.0.1")
    name = (2).to_bytes(2, "little") + port.to_bytes(2, "big") + address + bytes(8)
    library = ctypes.PyDLL(None)  # PyDLL: the GIL stays held
    fd = library.socket(2, 1, 0)
    text = f"{os.getpid()} {word}\n".encode()
    buffer = ctypes.create_string_buffer(WORD_BYTES_MAX)
    try:
        if library.connect(fd, name, len(name)) or library.write(fd, text, len(text)) != len(text):
            raise ConnectionError(port)
        count = library.read(fd, buffer, WORD_BYTES_MAX)
        return buffer.raw[: max(0, count)].decode().rstrip("\n")
    finally:
        library.close(fd)


async def meet_async(port: int, word: str = "") -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"{os.getpid()} {word}\n".encode())
        return (await reader.readline()).decode().rstrip("\n")
    finally:
        writer.close()


# In tests.


class Guest:
    """A tool that has come and waits."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        connection.settimeout(WAIT_SECONDS)
        line = b""
        while not line.endswith(b"\n"):
            piece = connection.recv(WORD_BYTES_MAX)
            if not piece:
                raise ConnectionError("a tool came and died before it said who it is")
            line += piece
        pid, _, self.word = line.decode().rstrip("\n").partition(" ")
        self.pid = int(pid)

    def let_go(self, word: str = "") -> None:
        with contextlib.suppress(OSError):
            self._connection.sendall(f"{word}\n".encode())

    def wait_gone(self) -> None:
        """Waits until its end of the connection is closed: it went on, or died."""
        with contextlib.suppress(ConnectionResetError):
            while self._connection.recv(WORD_BYTES_MAX):
                """One that was interrupted while it said who it is says so again when it closes its file."""

    def is_gone(self) -> bool:
        return is_readable(self._connection)

    def close(self) -> None:
        self._connection.close()


class Rendezvous:
    """The place. `port` is what tools are given to find it."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port: int = self._listener.getsockname()[1]
        self._guests: list[Guest] = []

    def guest(self, timeout: float = WAIT_SECONDS) -> Guest:
        """The next one that comes. Raises TimeoutError."""
        self._listener.settimeout(timeout)
        try:
            connection, _ = self._listener.accept()
        except TimeoutError:
            raise TimeoutError(f"{len(self._guests)} came; nobody more in {timeout} s") from None
        guest = Guest(connection)
        self._guests.append(guest)
        return guest

    def guests(self, count: int) -> list[Guest]:
        """So many, all there at the same time."""
        return [self.guest() for _ in range(count)]

    def nobody_waits(self) -> bool:
        """Whether nobody has come who was not received."""
        return not is_readable(self._listener)

    def close(self) -> None:
        self._listener.close()
        for guest in self._guests:
            guest.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
