"""The load generator of the core, as the lab calls it."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from clutch._core import Latencies, Load

_SHOWN = {"min_us", "mean_us", "p50_us", "p75_us", "p90_us", "p95_us", "p99_us", "p999_us", "max_us", "by_percentile"}
_REQUESTS = [{"path": "/a", "weight": 3}, {"path": "/b", "method": "POST", "headers": [["x-test", "1"]]}]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def _plan(port: int, **more: Any) -> str:
    http = {"requests": _REQUESTS}
    return json.dumps({"address": f"127.0.0.1:{port}", "protocol": {"http": http}, "connections": 2, **more})


def test_a_load_measures_again_and_again(port: int) -> None:
    load = Load(_plan(port), [[], [b"\x00\xff", b"second"]])
    poisson = {"poisson": {"per_second": 200, "seed": 1}}
    for arrivals in ("closed", poisson, poisson):
        report = json.loads(load.measure(json.dumps({"seconds": 0.2, "arrivals": arrivals, "grace_seconds": 20})))
        assert report["errors"] == {}
        assert report["answers"] == sum(report["by_request"]) == sum(report["by_connection"]) > 0
        assert report.keys() >= _SHOWN
    load.close()
    load.close()
    with pytest.raises(ValueError, match="closed"):
        load.measure('{"seconds": 1}')


def test_what_cannot_be_done_is_an_error_in_words(port: int) -> None:
    with pytest.raises(ValueError, match="plan: missing field `address`"):
        Load("{}", [])
    with pytest.raises(ValueError, match="1 ≤ threads ≤ connections"):
        Load(_plan(port, threads=3), [])
    with pytest.raises(ConnectionRefusedError, match=r"127\.0\.0\.1:1: "):
        Load(_plan(1), [])
    load = Load(_plan(port), [])
    with pytest.raises(ValueError, match="measure: unknown field `rate`"):
        load.measure('{"seconds": 1, "rate": 1}')
    with pytest.raises(ValueError, match="seconds = -1"):
        load.measure('{"seconds": -1}')
    load.close()


def test_a_signal_ends_a_measurement(port: int) -> None:
    def interrupt(*_: object) -> None:
        raise InterruptedError

    load = Load(_plan(port), [])
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(InterruptedError):
            load.measure('{"seconds": 600}')
    finally:
        signal.signal(signal.SIGALRM, before)
    assert json.loads(load.measure('{"seconds": 0.05}'))["answers"] > 0
    load.close()


def test_latencies_of_all_threads_are_counted() -> None:
    latencies = Latencies()
    with ThreadPoolExecutor(4) as threads:
        for ms in range(1, 101):
            threads.submit(latencies.record, ms / 1000)
            threads.submit(latencies.record_many, [ms / 1000] * 9)
    report = latencies.report()
    assert report.keys() == _SHOWN | {"count"}
    assert report["count"] == 1000
    assert report["p50_us"] == pytest.approx(50_000, rel=0.002)
    assert report["p99_us"] == pytest.approx(99_000, rel=0.002)
    assert report["by_percentile"][-1] == (100.0, report["max_us"])


def test_a_latency_below_zero_is_refused() -> None:
    latencies = Latencies()
    for impossible in (-1.0, float("nan")):
        with pytest.raises(ValueError, match=r"a latency of .* s"):
            latencies.record(impossible)
        with pytest.raises(ValueError, match=r"a latency of .* s"):
            latencies.record_many([1.0, impossible])
    assert latencies.report()["count"] == 0
