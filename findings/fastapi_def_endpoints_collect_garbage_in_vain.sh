#!/usr/bin/env bash
# With fifty requests under way, `def` endpoints of FastAPI make CPython's garbage collector run every few requests, and
# it finds nothing, ever. An `async def` endpoint of the same app lets it rest.
#
# Seen: FastAPI 0.165.0, Starlette 1.10.0, uvicorn 0.54.0, CPython 3.11.7 and 3.12.1: 10,000 requests on 50 connections
# bring 850 collections of the youngest generation and 84 of older ones for `def`, in 0.3 s, none of which finds an
# object; and 4 for `async def`.
#
# Why: the collector counts objects that are alive, not garbage. It runs when 700 more that could be part of a cycle
# have been made than freed. A request of an `async def` endpoint that waits for nothing is over, and all of its some
# eighty such objects are freed, before the next begins. One that waits for a thread keeps them until its answer
# comes: fifty of these are 4,000 objects, so each wave of requests costs several collections. (gc.freeze() after the
# imports, which many servers advise, does not help: the objects are those of the requests.) CPython 3.13 waits for
# 2,000 objects, which makes it fewer; 3.14 has another collector.
#
# Fails if this changes.
set -euo pipefail

python=$(command -v "${PYTHON:-python3}")
"$python" -c 'import sys; assert (3, 11) <= sys.version_info < (3, 13), "for CPython 3.11 and 3.12: set PYTHON"'
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check \
    fastapi==0.165.0 starlette==1.10.0 uvicorn==0.54.0 anyio==4.16.0

cat >"$folder/client.py" <<'PROGRAM'
"""`client.py PORT PATH COUNT`: so many requests on each of fifty connections."""

import asyncio
import sys

CONNECTIONS = 50


async def ask(port: int, path: str, count: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(count):
        writer.write(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        assert await reader.readexactly(8) == b'{"id":1}'
    writer.close()


async def main() -> None:
    port, path, count = sys.argv[1:]
    await asyncio.gather(*(ask(int(port), path, int(count)) for _ in range(CONNECTIONS)))


asyncio.run(main())
PROGRAM

cat >"$folder/counted.py" <<'PROGRAM'
import gc
import subprocess
import sys
import threading
import time

import fastapi
import uvicorn

CONNECTIONS, EACH = 50, 200
app = fastapi.FastAPI()


@app.get("/def")
def in_a_thread() -> dict[str, int]:
    return {"id": 1}


@app.get("/async")
async def on_the_loop() -> dict[str, int]:
    return {"id": 1}


class Counted:
    def __init__(self) -> None:
        self.young = self.older = self.found = 0
        self.seconds = self.began = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self.began = time.perf_counter()
            return
        self.seconds += time.perf_counter() - self.began
        self.young += info["generation"] == 0
        self.older += info["generation"] > 0
        self.found += info["collected"] + info["uncollectable"]


def counted(port: int, path: str) -> Counted:
    ask = [sys.executable, "client.py", str(port), path]
    subprocess.run([*ask, "5"], check=True)
    gc.collect()
    one = Counted()
    gc.callbacks.append(one)
    subprocess.run([*ask, str(EACH)], check=True)
    gc.callbacks.remove(one)
    print(
        f"{path}: {CONNECTIONS * EACH:,} requests, {one.young} collections of the youngest generation and {one.older} "
        f"of older ones ({one.seconds:.2f} s), {one.found} objects found"
    )
    return one


server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", access_log=False))
serving = threading.Thread(target=server.run)
serving.start()
while not server.started:
    time.sleep(0.01)
port = server.servers[0].sockets[0].getsockname()[1]
try:
    waits, runs_through = counted(port, "/def"), counted(port, "/async")
finally:
    server.should_exit = True
    serving.join()
assert waits.young > CONNECTIONS * EACH / 50 and waits.older > 10
# What asyncio.subprocess, logging or an import leaves behind once is not of the requests.
assert waits.found < 100
assert runs_through.young + runs_through.older < 10
PROGRAM
cd "$folder"
env/bin/python counted.py
