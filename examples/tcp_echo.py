"""A TCP handler: each accepted connection goes to a worker, as a socket or as asyncio's streams.

Serves `shout` below with `clutch serve --tcp` and talks to it. Then the code is loaded anew: the open connections read
the end of their input, say goodbye, and the next client is served by another process.

Run: python examples/tcp_echo.py
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path


async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Says every line again, louder, until its peer has ended, or its worker is to end."""
    writer.write(f"worker {os.getpid()}\n".encode())
    while line := await reader.readline():
        writer.write(line.upper())
        await writer.drain()
    writer.write(b"goodbye\n")


def main() -> None:
    # The server takes this socket over. Before it is up, clients wait in the socket's backlog.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        bind = f"fd://{listener.fileno()}"
        command = [sys.executable, "-m", "clutch", "serve", "--tcp", "tcp_echo:shout", "-w", "1", "-b", bind]
        folder = Path(__file__).parent
        server = subprocess.Popen([*command, "--log-level", "warning"], cwd=folder, pass_fds=[listener.fileno()])
        try:
            talk(listener.getsockname(), server)
        finally:
            server.terminate()
            server.wait(30)


def talk(address: tuple[str, int], server: subprocess.Popen[bytes]) -> None:
    with Client(address) as one, Client(address) as other:
        worker = one.line()
        print("both in one worker:", worker == other.line())
        print("one:", one.ask("hello"))
        print("other:", other.ask("good morning"))
        server.send_signal(signal.SIGHUP)  # load the code anew
        print("after the reload:", one.line(), other.line())
    with Client(address) as late:
        print("in another worker:", late.line() != worker)
        print("late:", late.ask("still there?"))


class Client:
    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=30)
        self._lines = self._socket.makefile("rw")

    def line(self) -> str:
        return self._lines.readline().rstrip("\n")

    def ask(self, text: str) -> str:
        self._lines.write(f"{text}\n")
        self._lines.flush()
        return self.line()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()
        self._socket.close()


if __name__ == "__main__":
    main()
