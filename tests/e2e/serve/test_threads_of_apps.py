"""Threads that an app has started itself have their turn, however busy the loop beside them is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from support.clutch_process import WAIT_SECONDS
from support.serve_process import ANY_PORT, Serving

CONNECTIONS = 32
TURNS = 40
REQUESTS_MAX = 500 * TURNS
"""A thread that waits for the interpreter gets it in 5 ms or so; so many requests take ten times as long, or longer."""


class Clients:
    """Ask until the thread has had its turns, or until it should have."""

    def __init__(self) -> None:
        self.first: int | None = None
        self.turns = self.asked = 0

    async def ask(self, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while self.turns < TURNS and self.asked < REQUESTS_MAX:
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in head.lower().splitlines() if line.startswith(b"content-length:"))
            seen = int(await reader.readexactly(int(length.split(b":")[1])))
            self.first = seen if self.first is None else self.first
            self.turns = max(self.turns, seen - self.first)
            self.asked += 1
        writer.close()

    async def ask_all(self, port: int) -> None:
        async with asyncio.timeout(WAIT_SECONDS), asyncio.TaskGroup() as group:
            for _ in range(CONNECTIONS):
                group.create_task(self.ask(port))


@pytest.mark.parametrize("dispatch", ["connection", "request"])
@pytest.mark.parametrize("loop", ["asyncio", "auto"])
def test_a_thread_has_its_turn_beside_a_busy_loop(tmp_path: Path, loop: str, dispatch: str) -> None:
    flags = ["-w", "1", "--loop", loop, "--dispatch", dispatch]
    with Serving(tmp_path, "thread_app:app", "-b", ANY_PORT, *flags) as serving:
        serving.wait_ready("web")
        clients = Clients()
        asyncio.run(clients.ask_all(int(serving.address.rpartition(":")[2])))
        assert clients.turns >= TURNS, f"{clients.turns} turns in {clients.asked} requests"
