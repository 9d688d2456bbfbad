#!/usr/bin/env bash
# Beside a busy FastAPI app a thread of the same process (an exporter, a scheduler) has its turn tenths of a second late if
# uvicorn runs on uvloop, and a millisecond late if it runs on asyncio's own loop.
#
# Seen: uvicorn 0.54.0, uvloop 0.23.0, h11 0.16.0, fastapi 0.165.0, CPython 3.11.7, 2 CPUs, 8 clients that ask again as
# soon as they are answered. A thread that is to wake every 20 ms does so late by 50 to 350 ms on uvloop, and by 0.6 to
# 1.2 ms on asyncio (medians of five rounds of two seconds).
#
# Why: CPython lets a thread that waits for the GIL ask for it only when nobody has let go of it for 5 ms
# (`sys.setswitchinterval`). uvloop runs libuv without the GIL and takes it back for each callback: it is free for a moment
# in each turn, which wakes the thread and starts its 5 ms anew, and is taken again before the thread runs. asyncio lets go
# of it in `recv` and `send`, for longer. A protocol that answers without a framework does not show it.
#
# Fails if this changes.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check \
    uvicorn==0.54.0 uvloop==0.23.0 h11==0.16.0 fastapi==0.165.0 starlette==1.10.0
cat >"$folder/late.py" <<'PROGRAM'
import contextlib
import statistics
import threading
import time

from fastapi import FastAPI

late = []


def wake():
    due = time.perf_counter()
    while True:
        due += 0.02
        time.sleep(max(0, due - time.perf_counter()))
        late.append(time.perf_counter() - due)


@contextlib.asynccontextmanager
async def lifespan(app):
    threading.Thread(target=wake, daemon=True).start()
    yield


app = FastAPI(lifespan=lifespan)


@app.get("/")
async def answer():
    return {"ok": 1}


@app.get("/late")
async def median():
    seen, late[:] = list(late), []
    return statistics.median(seen) if seen else 0
PROGRAM
cat >"$folder/seen.py" <<'PROGRAM'
import asyncio
import statistics
import subprocess
import sys
import time
import urllib.request

SECONDS, CLIENTS, ROUNDS = 2, 8, 5


async def ask(port, end):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.monotonic() < end:
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().split(b"content-length:")[1].split()[0]))
    writer.close()


async def ask_all(port):
    end = time.monotonic() + SECONDS
    await asyncio.gather(*(ask(port, end) for _ in range(CLIENTS)))


def get(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as response:
        return float(response.read())


def seen(loop, port):
    command = [sys.executable, "-m", "uvicorn", "late:app", "--port", str(port), "--loop", loop, "--http", "h11"]
    server = subprocess.Popen([*command, "--log-level", "error", "--no-access-log"])
    try:
        end, medians = time.monotonic() + 30, []
        while True:
            try:
                time.sleep(0.2)
                get(port, "/late")
                break
            except OSError:
                assert time.monotonic() < end, "it took too long"
        for _ in range(ROUNDS):
            get(port, "/late")
            asyncio.run(ask_all(port))
            medians.append(get(port, "/late"))
    finally:
        server.terminate()
        server.wait()
    print(loop, "late by", " ".join(f"{median * 1e3:.1f}" for median in medians), "ms", sep="\t")
    return statistics.median(medians)


own, other = seen("asyncio", 18_341), seen("uvloop", 18_342)
assert other >= 5 * own, "changed"
PROGRAM
cd "$folder"
env/bin/python seen.py
