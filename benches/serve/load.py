"""Drives a server that runs: wrk for closed loops over HTTP, our own program for all that wrk cannot do.

wrk waits for each answer before it sends the next request, so it says what a server can do at most. It cannot keep a
rate, nor speak WebSocket or TCP; `crates/clutch-load/src` does.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from benches.harness import Skipped
from benches.serve.server import ROOT, Running

CONNECTIONS = 100
# Threads of wrk that a row may choose from, by trying.
WRK_THREADS = (1, 2)
_BUILD = ["cargo", "bench", "--quiet", "--package", "clutch-load", "--bench", "load", "--no-run"]
_OVERTIME_SECONDS = 30
_DISTURBED_SECONDS_MAX = 180
_LOOK_SECONDS_MAX = 20
_LOOKERS = 64
_UNIT_MS = {"us": 0.001, "ms": 1.0, "s": 1_000.0, "m": 60_000.0}


@dataclass(frozen=True)
class Figures:
    """What clients saw."""

    rate: float
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True)
class Plan:
    """What our own program does: the fields of `clutch_load::Plan`, and a measurement in a closed loop or at a rate."""

    address: str
    protocol: dict[str, Any]
    connections: int
    threads: int
    seconds: float
    per_second: float | None = None


@functools.cache
def wrk() -> str:
    """The path of wrk, installed if that may be."""
    if shutil.which("wrk") is None and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "install", "-y", "-q", "wrk"], check=False, stdout=sys.stderr)
    if (path := shutil.which("wrk")) is None:
        raise Skipped("wrk is missing: `sudo apt-get install wrk`, or build it from https://github.com/wg/wrk")
    return path


def by_wrk(server: Running, path: str, seconds: int, threads: int = 1, connections: int = CONNECTIONS) -> Figures:
    """As fast as `connections` clients can ask, each waiting for its answer."""
    shape = [f"-t{min(threads, connections)}", f"-c{connections}", f"-d{seconds}s", "--latency"]
    return parsed(_printed([wrk(), *shape, server.url(path)], seconds + _OVERTIME_SECONDS))


def _printed(command: list[str], seconds_max: float) -> str:
    """What a program printed; one that fails or takes too long is an error that says which."""
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=seconds_max)
    except subprocess.CalledProcessError as error:
        raise RuntimeError(f"{command} failed: {error.stderr.strip()}") from error
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"{command} did not end within {seconds_max} s") from error
    return done.stdout


def parsed(printed: str) -> Figures:
    """What wrk printed; an error that it counted is an error here."""
    if "Non-2xx" in printed or "Socket errors" in printed:
        raise RuntimeError(f"wrk saw errors:\n{printed}")
    rate = re.search(r"Requests/sec:\s*([\d.]+)", printed)
    if rate is None:
        raise RuntimeError(f"wrk printed no rate:\n{printed}")
    return Figures(float(rate[1]), _percentile_ms(printed, 50), _percentile_ms(printed, 99))


@dataclass(frozen=True)
class Outcome:
    """What became of the requests of a closed loop that was disturbed."""

    answered: int
    not_2xx: int
    refused: int
    broken_off: int
    timed_out: int

    @property
    def failed(self) -> int:
        # What is broken off is mostly counted as late, too.
        return self.not_2xx + self.refused + max(self.broken_off, self.timed_out)


@contextlib.contextmanager
def under_wrk(server: Running, path: str) -> Iterator[Callable[[], Outcome]]:
    """Load around the block; after it, what is given tells what became of it."""
    command = [wrk(), "-t1", f"-c{CONNECTIONS}", f"-d{_DISTURBED_SECONDS_MAX}s", server.url(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    printed: list[str] = []
    try:
        yield lambda: outcome(printed[0])
    finally:
        process.send_signal(signal.SIGINT)  # wrk prints what it has so far
        printed.append(process.communicate(timeout=_OVERTIME_SECONDS)[0])


def outcome(printed: str) -> Outcome:
    """What wrk printed of a load in which requests may fail."""

    def count(pattern: str) -> int:
        found = re.search(pattern, printed)
        return int(found[1]) if found is not None else 0

    if "requests in" not in printed:
        raise RuntimeError(f"wrk printed no requests:\n{printed}")
    broken_off = count(r"Socket errors:.*read (\d+)") + count(r"Socket errors:.*write (\d+)")
    return Outcome(
        answered=count(r"(\d+) requests in"),
        not_2xx=count(r"Non-2xx or 3xx responses: (\d+)"),
        refused=count(r"Socket errors: connect (\d+)"),
        broken_off=broken_off,
        timed_out=count(r"timeout (\d+)"),
    )


def workers(server: Running, count: int) -> set[int]:
    """The pids of all workers of the FastAPI app, asked on many connections at once until each has answered."""
    seen: set[int] = set()
    end = time.monotonic() + _LOOK_SECONDS_MAX
    while len(seen) < count:
        if time.monotonic() > end:
            raise RuntimeError(f"only {len(seen)} of {count} workers answered in {_LOOK_SECONDS_MAX} s")
        seen |= pids(server)
    return seen


def pids(server: Running) -> set[int]:
    """Those of the workers of the FastAPI app that answer now."""
    with ThreadPoolExecutor(_LOOKERS) as clients:
        found = clients.map(_pid, [server.port] * _LOOKERS)
        return {pid for pid in found if pid is not None}


def _pid(port: int) -> int | None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    with contextlib.closing(connection):
        try:
            connection.request("GET", "/pid")
            answer = connection.getresponse()
            return int(answer.read()) if answer.status == http.HTTPStatus.OK else None
        except (OSError, http.client.HTTPException):
            return None


def _percentile_ms(printed: str, percent: int) -> float:
    found = re.search(rf"^\s*{percent}%\s+([\d.]+)(us|ms|s|m)\s*$", printed, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"wrk printed no {percent}th percentile:\n{printed}")
    return float(found[1]) * _UNIT_MS[found[2]]


def by_plan(plan: Plan) -> dict[str, Any]:
    """The report of `clutch_load`; a request that failed is an error here, one that came late is a figure."""
    fields = asdict(plan)
    seconds, per_second = fields.pop("seconds"), fields.pop("per_second")
    measure = {"seconds": seconds, "arrivals": "closed" if per_second is None else {"even": {"per_second": per_second}}}
    command = [program(), json.dumps(fields), json.dumps(measure)]
    report = json.loads(_printed(command, plan.seconds + _OVERTIME_SECONDS))
    if failed := {kind: count for kind, count in report["errors"].items() if kind != "timeout"}:
        raise RuntimeError(f"requests failed, {failed}, the first so: {report['first_error']}")
    return report


@functools.cache
def program() -> str:
    """Build the load generator and give its path."""
    built = subprocess.run([*_BUILD, "--message-format=json"], cwd=ROOT, check=True, stdout=subprocess.PIPE)
    messages = [json.loads(line) for line in built.stdout.splitlines() if line.startswith(b"{")]
    return next(message["executable"] for message in messages if message.get("executable"))
