"""A server on a Unix socket that answers each question after some milliseconds: what the I/O tool waits for.

Run as `python slow_server.py PATH MILLISECONDS`; prints a line when it listens, ends when its standard input does.
"""

import asyncio
import sys

_BACKLOG = 1_024


async def main() -> None:
    path, delay = sys.argv[1], float(sys.argv[2]) / 1_000

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        await asyncio.sleep(delay)
        writer.write(b"pong\n")
        writer.close()

    async with await asyncio.start_unix_server(answer, path, backlog=_BACKLOG):
        print("listening", flush=True)
        await asyncio.to_thread(sys.stdin.read)


asyncio.run(main())
