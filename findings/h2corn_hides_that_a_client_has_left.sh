#!/usr/bin/env bash
# Under h2corn an application that waits before it answers is not told that its client has left.
#
# Seen: h2corn 2.0.0, HTTP/1.1, Starlette 1.10.0, CPython 3.11.7: a handler asks request.is_disconnected() ten times a
# second for 5 s, as long polling does, and its client closes the connection at once. It is False to the end. Under
# uvicorn 0.54.0 and granian 2.8.9 it is True within a second. `await receive()` does not tell, either.
#
# Why: h2corn seems to learn of a client that has left when it writes to it: it cancels an application that streams,
# and one that has begun no answer writes nothing. So `while not await request.is_disconnected()` holds on to what it
# has for as long as it has something to wait for.
#
# Fails if this changes.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check \
    h2corn==2.0.0 uvicorn==0.54.0 granian==2.8.9 starlette==1.10.0
cat >"$folder/page.py" <<'PROGRAM'
import asyncio
import os

from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route


def tell(word):
    with open(os.environ["TOLD"], "a") as file:
        file.write(f"{word}\n")


async def poll(request):
    tell("begun")
    try:
        for _ in range(50):
            if await request.is_disconnected():
                tell("disconnected")
                break
            await asyncio.sleep(0.1)
        else:
            tell("not told")
    except asyncio.CancelledError:
        tell("cancelled")
        raise
    return PlainTextResponse("nothing new")


async def wait(request):
    tell("begun")
    try:
        async with asyncio.timeout(5):
            while (await request.receive())["type"] != "http.disconnect":
                pass
        tell("disconnected")
    except TimeoutError:
        tell("not told")
    except asyncio.CancelledError:
        tell("cancelled")
        raise
    return PlainTextResponse("nothing new")


application = Starlette(routes=[Route("/poll", poll), Route("/wait", wait)])
PROGRAM
cat >"$folder/leaves.py" <<'PROGRAM'
import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

folder = pathlib.Path(sys.argv[1])
SERVERS = {
    "h2corn": "h2corn page:application --bind 127.0.0.1:{port}",
    "uvicorn": "uvicorn --host 127.0.0.1 --port {port} page:application",
    "granian": "granian --interface asgi --host 127.0.0.1 --port {port} page:application",
}


def until(get, process, log):
    deadline = time.monotonic() + 30
    while not (got := get()):
        if process.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"no answer: {log.read_text()[-1000:]}")
        time.sleep(0.05)
    return got


def connect(port):
    with contextlib.suppress(ConnectionRefusedError):
        return socket.create_connection(("127.0.0.1", port), timeout=20)


def leave(name):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    told, log = folder / f"{name}.told", folder / f"{name}.log"
    program, *arguments = SERVERS[name].format(port=port).split()
    environment = os.environ | {"PYTHONPATH": str(folder), "TOLD": str(told)}
    with open(log, "w") as output, subprocess.Popen(
        [str(folder / "env/bin" / program), *arguments],
        env=environment,
        stdout=output,
        stderr=output,
        start_new_session=True,
    ) as process:
        try:
            ends = []
            for path in ("/poll", "/wait"):
                told.write_text("")
                with until(lambda: connect(port), process, log) as client:
                    client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                    until(told.read_text, process, log)
                until(lambda: told.read_text().count("\n") == 2, process, log)
                ends.append(told.read_text().splitlines()[1])
            return ends
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


ends = {name: leave(name) for name in SERVERS}
print("is_disconnected(), receive():", ends)
TOLD = ["disconnected", "disconnected"]
assert ends == {"h2corn": ["not told", "not told"], "uvicorn": TOLD, "granian": TOLD}, "changed"
PROGRAM
"$folder/env/bin/python" "$folder/leaves.py" "$folder"
