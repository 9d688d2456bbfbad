"""A server of known latency for the tests of the lab: `python simulated.py PORT DELAY FREEZE_AT FREEZE_FOR`.

Each answer comes DELAY seconds after its request. Once, FREEZE_AT seconds after request number WARM, all answers are
held for FREEZE_FOR seconds; 0: never.
"""

from __future__ import annotations

import asyncio
import sys

WARM = 50


class Server:
    def __init__(self, delay: float, freeze_at: float, freeze_for: float) -> None:
        self.delay, self.freeze_at, self.freeze_for = delay, freeze_at, freeze_for
        self.count = 0
        self.thaws = asyncio.Event()
        self.thaws.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"\n"):
            self.count += 1
            if self.count == WARM and self.freeze_for:
                asyncio.get_running_loop().call_later(self.freeze_at, self.freeze)
            await asyncio.sleep(self.delay)
            await self.thaws.wait()
            writer.write(b"pong\n")

    def freeze(self) -> None:
        self.thaws.clear()
        asyncio.get_running_loop().call_later(self.freeze_for, self.thaws.set)


async def main() -> None:
    port, delay, freeze_at, freeze_for = int(sys.argv[1]), *map(float, sys.argv[2:5])
    server = Server(delay, freeze_at, freeze_for)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await server.serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", port) as listener:
        await listener.serve_forever()


asyncio.run(main())
