"""`python -m benches.training`: what Clutch does in its benches, each for a moment and without peers.

A build that counts how often its code runs is put to this work, and the compiler makes the published one by its counts
(tools/train.sh). What is never done here is made small rather than fast, so each kind of work has its contender.
"""

from __future__ import annotations

import contextlib
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import httpx

from benches import calls, jobs, serve
from benches.hostile.server import module, running
from benches.suite import QUICK, Row
from clutch.lab.contender import Contender, contender_of
from clutch.lab.load import Load
from clutch.lab.setting import Setting
from clutch.lab.work import App, Calls, Request

SECONDS = 1.0
ROWS = {
    calls: ("echo", "submit", "map", "asyncio", "payload-bytes", "payload-array", "http", "deadline"),
    serve: ("noop-asgi", "noop-wsgi", "fastapi-async", "fastapi-sync", "large", "websocket", "tcp-"),
    jobs: ("drain", "enqueue", "sqlite-drain", "sqlite-enqueue"),
}
"""Of each suite, by how their names begin."""
READING = "benches.serve.apps:reading_asgi"
BY_REQUEST = ("--dispatch", "request")
MORE = {
    "a body to the app": App(READING, (Request("/upload?to=here", "POST", (("Accept", "*/*"),), b"x" * 20_000),)),
    "ASGI by request": serve.app_of(serve.ASGI, "/", *BY_REQUEST),
    "WSGI by request": serve.app_of(serve.WSGI, "/", *BY_REQUEST),
    "WSGI in threads, with its log": serve.app_of(serve.WSGI, "/", "--threads", "4", "--access-logfile", "/dev/null"),
    "FastAPI by request": serve.app_of(serve.FASTAPI, "/async/small", *BY_REQUEST),
}
SETTINGS = (Setting("thread", 1, threads=4), Setting("async", 1, tasks=16))
"""What no bench measures everywhere."""


def main() -> int:
    """0 when all that can be done here was done."""
    work = {name: partial(measured, one) for name, one in contenders()} | {"TLS and HTTP/2": over_tls}
    failed = [name for name, one in work.items() if not is_done(name, one)]
    return 1 if failed else 0


def measured(one: Contender) -> None:
    with one.start() as trial:
        trial.measure(one.load, SECONDS)


def is_done(name: str, work: Callable[[], object]) -> bool:
    began = time.monotonic()
    try:
        work()
    except Exception as error:
        print(f"{name} FAILED: {error}", file=sys.stderr)
        return False
    print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)
    return True


def contenders() -> Iterator[tuple[str, Contender]]:
    for suite, wanted in ROWS.items():
        for name, row in suite.rows(QUICK).items():
            if isinstance(row, Row) and name.startswith(wanted) and isinstance(row.loads[0], Load):
                one = row.ours[0]
                yield name, replace(one, order=row.over(dict(one.order)), load=row.loads[0])
    for name, app in MORE.items():
        yield name, serve.clutch(app)
    for setting in SETTINGS:
        yield f"calls, {setting}", contender_of(Calls("benches.calls.plain", "increment", [1]), setting)


def over_tls() -> None:
    """Requests over HTTP/2 with TLS, on connections of several clients."""
    with tempfile.TemporaryDirectory() as folder:
        key, certificate = (Path(folder) / name for name in ("key.pem", "certificate.pem"))
        order = f"openssl req -x509 -newkey rsa:2048 -nodes -keyout {key} -out {certificate} -subj /CN=localhost"
        subprocess.run(order.split(), check=True, capture_output=True)
        flags = ("serve", READING, "-b", "127.0.0.1:{port}", "--certfile", str(certificate), "--keyfile", str(key))
        with running(module("clutch", "clutch", *flags), is_answered) as server, ThreadPoolExecutor() as clients:
            list(clients.map(partial(ask, server.port, 3 * SECONDS), (True, True, False)))


def client(is_two: bool) -> httpx.Client:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return httpx.Client(http2=is_two, verify=context, trust_env=False)


def is_answered(port: int) -> bool:
    with contextlib.suppress(httpx.HTTPError), client(False) as one:
        return one.get(f"https://127.0.0.1:{port}/").is_success
    return False


def ask(port: int, seconds: float, is_two: bool) -> None:
    until = time.monotonic() + seconds
    with client(is_two) as one:
        while time.monotonic() < until:
            one.post(f"https://127.0.0.1:{port}/", content=b"x" * 2000).raise_for_status()
            one.get(f"https://127.0.0.1:{port}/").raise_for_status()


if __name__ == "__main__":
    sys.exit(main())
