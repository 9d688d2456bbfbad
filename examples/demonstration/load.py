"""Closed loops: so many callers, each calling again as soon as it has its answer, for a given time.

One over HTTP with a thread and a kept connection for each caller, one in Python with asyncio.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from clutch import Pool
from demonstration.work import Case

HTTP_CALLERS = 16
PYTHON_CALLERS = 64
_JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Load:
    """What a loop found."""

    calls_per_second: float
    p50_ms: float
    p99_ms: float

    @classmethod
    def of(cls, latencies: list[float], spent: float) -> Load:
        percentiles = statistics.quantiles(latencies, n=100, method="inclusive")
        return cls(len(latencies) / spent, percentiles[49] * 1_000, percentiles[98] * 1_000)


def over_http(address: str, pool: str, case: Case, seconds: float) -> Load:
    """POST the tool's arguments again and again; any answer but 200 is an error."""
    began = time.perf_counter()
    with ThreadPoolExecutor(HTTP_CALLERS) as callers:
        loops = [callers.submit(_http_caller, address, pool, case, began + seconds) for _ in range(HTTP_CALLERS)]
        latencies = [latency for loop in loops for latency in loop.result()]
    return Load.of(latencies, time.perf_counter() - began)


def _http_caller(address: str, pool: str, case: Case, end: float) -> list[float]:
    latencies = []
    with closing(http.client.HTTPConnection(address)) as connection:
        while (began := time.perf_counter()) < end or len(latencies) < 2:
            http_call(connection, pool, case.tool, case.arguments)
            latencies.append(time.perf_counter() - began)
    return latencies


def http_call(connection: http.client.HTTPConnection, pool: str, tool: str, arguments: dict[str, Any]) -> Any:
    """One call: its result, or a RuntimeError with the problem document."""
    connection.request("POST", f"/pools/{pool}/tools/{tool}", json.dumps(arguments), _JSON)
    answer = connection.getresponse()
    body = json.loads(answer.read())
    if answer.status != http.client.OK:
        raise RuntimeError(f"{pool}/{tool}: {answer.status} {body}")
    return body["result"]


def http_stream(address: str, pool: str, tool: str, arguments: dict[str, Any]) -> Iterator[tuple[float, Any]]:
    """Each line of a streamed answer, with the milliseconds since the request."""
    began = time.perf_counter()
    with closing(http.client.HTTPConnection(address)) as connection:
        headers = _JSON | {"Accept": "application/x-ndjson"}
        connection.request("POST", f"/pools/{pool}/tools/{tool}", json.dumps(arguments), headers)
        for line in connection.getresponse():
            yield (time.perf_counter() - began) * 1_000, json.loads(line)


def from_python(pool: Pool, case: Case, seconds: float) -> Load:
    """Await the tool again and again in as many asyncio tasks as there are callers."""
    return asyncio.run(_python_callers(pool, case, seconds))


async def _python_callers(pool: Pool, case: Case, seconds: float) -> Load:
    began = time.perf_counter()
    loops = [_python_caller(pool, case, began + seconds) for _ in range(PYTHON_CALLERS)]
    latencies = [latency for found in await asyncio.gather(*loops) for latency in found]
    return Load.of(latencies, time.perf_counter() - began)


async def _python_caller(pool: Pool, case: Case, end: float) -> list[float]:
    latencies = []
    while (began := time.perf_counter()) < end or not latencies:
        await pool.submit(case.tool, **case.arguments)
        latencies.append(time.perf_counter() - began)
    return latencies
