#!/usr/bin/env bash
# A client of websockets that leaves with 17 messages unread waits 10 s, and its close code is 1006.
#
# Seen: websockets 17.4, CPython 3.11.7, its own server: a client takes one of the messages that it was sent and leaves
# its `with connect(...)`, in sync and in asyncio, with default settings. With 15 unread it has left at once, with close
# code 1000. With 17 it takes 10 s, and the code is 1006. A client of aiohttp 3.14.3 leaves the same server at once, with
# 1000, in both cases.
#
# Why: a connection keeps up to 16 messages (`max_queue`), and reads no more until most of them are taken. `close()` sends
# its frame and waits for the answer, which stands behind the messages that nobody reads, for as long as `close_timeout`
# allows. Whoever leaves a busy feed early, say after the first message, pays it each time.
#
# Fails if this changes.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check websockets==17.4 aiohttp==3.14.3
cat >"$folder/leaves.py" <<'PROGRAM'
import asyncio
import threading
import time

import aiohttp
import websockets.asyncio.client
import websockets.sync.client
import websockets.sync.server

FEW, MANY = 15, 17


def feed(connection):
    for number in range(int(connection.request.path[1:]) + 1):
        connection.send(str(number))
    for _ in connection:
        pass


def by_sync(url):
    with websockets.sync.client.connect(url) as connection:
        connection.recv()
        time.sleep(0.5)
        begun = time.monotonic()
    return time.monotonic() - begun, connection.close_code


async def by_asyncio(url):
    async with websockets.asyncio.client.connect(url) as connection:
        await connection.recv()
        await asyncio.sleep(0.5)
        begun = time.monotonic()
    return time.monotonic() - begun, connection.close_code


async def by_aiohttp(url):
    async with aiohttp.ClientSession() as session:
        async with session.ws_connect(url) as connection:
            await connection.receive()
            await asyncio.sleep(0.5)
            begun = time.monotonic()
        return time.monotonic() - begun, connection.close_code


seen = {}
with websockets.sync.server.serve(feed, "127.0.0.1", 0) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for unread in (FEW, MANY):
        url = f"ws://127.0.0.1:{server.socket.getsockname()[1]}/{unread}"
        for name, client in (("sync", by_sync), ("asyncio", by_asyncio), ("aiohttp", by_aiohttp)):
            left = client(url)
            took, code = asyncio.run(left) if asyncio.iscoroutine(left) else left
            seen[name, unread] = ("at once" if took < 5 else "late", code)
            print(f"{name}: {unread} unread: {took:.2f} s, {code}")
    server.shutdown()
prompt, late = ("at once", 1000), ("late", 1006)
assert seen == {
    ("sync", FEW): prompt,
    ("asyncio", FEW): prompt,
    ("aiohttp", FEW): prompt,
    ("sync", MANY): late,
    ("asyncio", MANY): late,
    ("aiohttp", MANY): prompt,
}, f"changed: {seen}"
PROGRAM
"$folder/env/bin/python" "$folder/leaves.py"
