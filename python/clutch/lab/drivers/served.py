"""A server, of Clutch or of somebody else, and the load of its clients over HTTP or TCP."""

from __future__ import annotations

import base64
import contextlib
import http.client
import itertools
import json
import os
import socket
import subprocess
import sys
import time
from typing import Any

from clutch.lab import generator, watching
from clutch.lab.drivers.program import Program, Wrong
from clutch.lab.load import Load, latencies_of
from clutch.lab.names import named

HOST = "127.0.0.1"
START_SECONDS_MAX = 90.0
CHECK_SECONDS_MAX = 60.0
CONTROL_SECONDS_MAX = 5.0
LONG_SECONDS = 0.02
LOOK_SECONDS = 0.02
BODIES = 64
"""Bodies that a function is asked for; they are used in turn."""
ANSWER_BYTES_MAX = 1 << 20
QUIET_SECONDS = 0.2
"""After so long without more, the answer over TCP is whole."""
HTTP_OK = range(200, 300)
GRACE_SECONDS, GRACE_SECONDS_MIN = 30.0, 1.0
ANSWERS_MIN = 8
"""Durations of a request that a window of a closed loop has at least."""


class Control(http.client.HTTPConnection):
    """To a control socket (docs/operating.md), by its path."""

    def __init__(self, path: str) -> None:
        super().__init__("clutch", timeout=CONTROL_SECONDS_MAX)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def start(order: dict[str, Any]) -> ServedDriver:
    return ServedDriver(order)


class ServedDriver:
    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        self.program: Program | None = None
        self.host, self.port = order.get("host", HOST), order.get("port") or free_port()
        self.client: generator.Load | None = None
        self.connections = 0
        self.is_known = False
        is_near = "command" not in order and self.host in ("127.0.0.1", "::1", "localhost")
        self.found = watching.listeners(self.port) if is_near else []
        self.bodies = [bodies_of(request) for request in order.get("requests", ())]
        began = time.perf_counter()
        try:
            if "command" in order:
                command = [part.replace("{port}", str(self.port)) for part in order["command"]]
                self.program = Program(command, order.get("environment", {}), order.get("has_session", True))
            self.wait_listening(began + START_SECONDS_MAX)
            self.start_s = time.perf_counter() - began
            self.check_s = self.check()
            if self.check_s > LONG_SECONDS:  # the first request may have imported something
                self.check_s = min(self.check_s, self.check())
            self.control = self.find_control()
            self.slots: int | None = (self.pool() or {}).get("slots")
        except BaseException as error:
            self.end()
            if self.program is not None:
                self.program.note_tail(error)
            raise

    def wait_listening(self, until: float) -> None:
        while True:
            with contextlib.suppress(OSError), socket.create_connection((self.host, self.port), 1):
                return
            if self.program is None:
                raise Wrong(f"nothing listens on {self.host}:{self.port}")
            if (code := self.program.ended()) is not None:
                raise Wrong(f"the server ended with {code} before it listened")
            if time.perf_counter() > until:
                raise Wrong(f"the server does not listen after {START_SECONDS_MAX:.0f} s")
            time.sleep(LOOK_SECONDS)

    def check(self) -> float:
        """Have each request answered once; return how long the longest takes. What a server of TCP answers is kept: all
        later answers are to be alike."""
        began, longest = time.perf_counter(), 0.0
        if self.order["kind"] == "tcp":
            self.answer = self.answered()
            return time.perf_counter() - began
        for request, bodies in zip(self.order["requests"], self.bodies, strict=True):
            began = time.perf_counter()
            connection = http.client.HTTPConnection(self.host, self.port, timeout=CHECK_SECONDS_MAX)
            with contextlib.closing(connection):
                what = f"{request['method']} {request['path']}"
                try:
                    headers = dict(request["headers"])
                    place = ""
                    connection.request(request["method"], request["path"], bodies[0] if bodies else None, headers)
                    answer = connection.getresponse()
                    text = whole(answer, began + CHECK_SECONDS_MAX)
                    if 300 <= answer.status < 400:
                        place = f" (to {answer.getheader('location')}: ask for that)"
                except (OSError, http.client.HTTPException) as error:
                    raise Wrong(f"{what} is not answered: {type(error).__name__}: {error}") from error
            if answer.status not in HTTP_OK:
                shown = text[:500].decode(errors="replace")
                raise Wrong(f"{what} is answered with {answer.status} {answer.reason}{place}: {shown}")
            longest = max(longest, time.perf_counter() - began)
        return longest

    def answered(self) -> bytes:
        message, until = bytes(self.order["message"]), self.order["until"]
        found = b""
        with socket.create_connection((self.host, self.port), CHECK_SECONDS_MAX) as connection:
            connection.sendall(message)
            with contextlib.suppress(TimeoutError):
                while len(found) < ANSWER_BYTES_MAX and (more := connection.recv(1 << 16)):
                    found += more
                    if until is not None and found.endswith(bytes(until)):
                        return found
                    connection.settimeout(QUIET_SECONDS)
        if not found or until is not None:
            raise Wrong(
                f"{message!r} is answered with {found[:100]!r}" + (f", without {bytes(until)!r}" if until else "")
            )
        return found

    def hello(self) -> dict[str, Any]:
        pool = self.pool()
        known = {} if pool is None else {"interface": pool["image"]["interface"], "slots": pool["slots"]}
        times = {"start_s": self.start_s, "check_s": self.check_s, "least_s": ANSWERS_MIN * self.check_s}
        return {**times, "port": self.port, **known}

    def find_control(self) -> str | None:
        """The control socket of a server of Clutch."""
        if self.program is None or not self.order.get("is_clutch", "clutch" in self.order.get("command", [])):
            return None
        asked = [sys.executable, "-m", "clutch", "ps", "--pid", str(self.program.pid), "--json"]
        done = subprocess.run(asked, capture_output=True, timeout=30)
        with contextlib.suppress(ValueError, LookupError):
            return str(json.loads(done.stdout)["control"])
        return None

    def pool(self) -> dict[str, Any] | None:
        """What the server knows of its pool."""
        if self.control is None:
            return None
        try:
            with contextlib.closing(Control(self.control)) as connection:
                connection.request("GET", "/pools")
                return dict(json.loads(connection.getresponse().read())["pools"][0])
        except (OSError, http.client.HTTPException, ValueError, LookupError):
            return None

    def spent(self) -> tuple[float, float] | None:
        """Seconds that requests have waited and run so far."""
        pool = self.pool()
        return None if pool is None or pool.get("run_s") is None else (pool["queued_s"], pool["run_s"])

    def pids(self) -> list[int]:
        """Of a server that ran before: the one that was named, or whoever listens here."""
        if self.program is not None:
            return self.program.pids()
        roots = [self.order["pid"]] if self.order.get("pid") else self.found
        return list(dict.fromkeys(pid for root in roots for pid in watching.below(root)))

    def memory_of(self) -> list[int]:
        return self.pids()

    def measure(self, load: Load, seconds: float) -> dict[str, Any]:
        client = self.client_of(load.callers)
        ramp = 0.0
        if load.rate is None:
            # The first window shows whether requests take as long as the first of a process did.
            seconds = max(seconds, (ANSWERS_MIN if self.is_known else 2) * self.check_s)
            ramp = min(self.check_s, seconds / 2)
        spent_before = self.spent()
        before = watching.usages(self.pids())
        asked = {"seconds": seconds + ramp, "arrivals": arrivals(load), "grace_seconds": self.grace(load)}
        report = json.loads(client.measure(json.dumps(asked)))
        self.check_alive(report)
        used = watching.used(before, watching.usages(self.pids()))
        spent = self.spent()
        every, sliced = report["answers"], report["series"]
        parts = list(zip(sliced["answers"], sliced["max_us"], strict=True))
        units, wall, errors = every, report["seconds"], report["errors"]
        if load.rate is None:
            # What is under way at the end has its time to end, and does not count then.
            within = max(1, round((seconds + ramp) / sliced["interval_s"]))
            parts = between_bursts(parts[:within], self.first_burst(load), ramp / sliced["interval_s"])
            units, wall = sum(count for count, _ in parts), len(parts) * sliced["interval_s"]
            self.is_known = True
            if every:
                self.check_s = min(self.check_s, report["min_us"] / 1e6)
        part = units / every if every else 0.0
        figures: dict[str, Any] = {
            "units": units,
            "wall_s": wall,
            "errors": errors,
            **used.as_figures(part),
            "load_cpu_s": report["cpu_s"] * part,
            "series": [((nr + 1) * sliced["interval_s"], count, us / 1e6) for nr, (count, us) in enumerate(parts)],
            "spoiled": report["spoiled"],
            "more": {"retried": float(report["retried"])} if report["retried"] else {},
            **latencies_of(report, units),
        }
        if spent is not None and spent_before is not None and every:
            figures["queued_s"], figures["run_s"] = (
                max(0.0, after - earlier) / every for after, earlier in zip(spent, spent_before, strict=True)
            )
        return figures

    def grace(self, load: Load) -> float:
        """Time for what is under way at the end: all that waits for a slot, twice."""
        if load.rate is not None or self.slots is None:
            return GRACE_SECONDS
        return min(GRACE_SECONDS, GRACE_SECONDS_MIN + 2 * self.check_s * (1 + load.callers / self.slots))

    def first_burst(self, load: Load) -> int:
        """Answers after which all slots are busy."""
        return load.callers if self.slots is None else min(load.callers, self.slots)

    def check_alive(self, report: dict[str, Any]) -> None:
        """Raises Wrong where the server has ended meanwhile, or does not listen any more."""
        if self.program is not None and (code := self.program.ended()) is not None:
            error = Wrong(f"the server has ended with {code} meanwhile")
            self.program.note_tail(error)
            raise error
        if report["errors"] and not report["answers"]:
            try:
                socket.create_connection((self.host, self.port), CHECK_SECONDS_MAX).close()
            except OSError as error:
                raise Wrong(f"the server stopped answering: {error}") from None

    def client_of(self, connections: int) -> generator.Load:
        """Connections are kept from one measurement to the next, as those of clients are."""
        if self.client is None or connections != self.connections:
            if self.client is not None:
                self.client.close()
            threads = 1 if connections < 2 or len(os.sched_getaffinity(0)) < 8 else 2
            address = f"[{self.host}]" if ":" in self.host else socket.gethostbyname(self.host)
            plan = {
                "address": f"{address}:{self.port}",
                "protocol": self.protocol(),
                "connections": connections,
                "threads": threads,
            }
            self.client = generator.Load(json.dumps(plan), self.bodies)
            self.connections = connections
        return self.client

    def host_header(self) -> str:
        """As the check sends it: the name rather than its address."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == 80 else f"{host}:{self.port}"

    def protocol(self) -> dict[str, Any]:
        if self.order["kind"] == "http":
            names = ("weight", "method", "path", "headers")
            requests = [{name: one[name] for name in names} for one in self.order["requests"]]
            for one in requests:
                if "host" not in {name.lower() for name, _ in one["headers"]}:
                    one["headers"] = [*one["headers"], ["Host", self.host_header()]]
            return {"http": {"requests": requests}}
        if self.order["kind"] == "websocket":
            return {"web_socket": {"path": self.order["requests"][0]["path"], "message": self.order["message"]}}
        until = self.order["until"]
        answer = {"exact": list(self.answer)} if until is None else {"until": until}
        return {"tcp": {"message": self.order["message"], "answer": answer}}

    def end(self) -> None:
        if self.client is not None:
            self.client.close()
        if self.program is not None:
            self.program.stop()


def whole(answer: http.client.HTTPResponse, until: float) -> bytes:
    """The body, or as much of it as is looked at. Raises OSError where it has no end by then."""
    found = b""
    while len(found) < ANSWER_BYTES_MAX and (more := answer.read1(1 << 16)):
        found += more
        if time.perf_counter() > until:
            raise OSError(f"it has no end within {CHECK_SECONDS_MAX:.0f} s; what streams for ever has no rate")
    return found


def between_bursts(parts: list[tuple[int, float]], first: int, ramp: float) -> list[tuple[int, float]]:
    """The intervals after that in which all slots have answered once, to the last with an answer: requests that all
    take the same time end in bursts, of which intervals that are cut anywhere have one more or one less. Where so many
    are not answered in a half of it: those after the ramp."""
    totals = list(itertools.accumulate(count for count, _ in parts))
    begin = next((nr + 1 for nr, total in enumerate(totals) if total >= first), len(parts))
    end = max((nr + 1 for nr, (count, _) in enumerate(parts) if count), default=0)
    if begin > len(parts) // 2 or end <= begin:
        begin, end = min(len(parts) - 1, round(ramp)), len(parts)
    return parts[begin:end]


def arrivals(load: Load) -> Any:
    if load.rate is None:
        return "closed"
    if load.is_poisson:
        return {"poisson": {"per_second": load.rate, "seed": load.seed}}
    return {"even": {"per_second": load.rate}}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return listener.getsockname()[1]


def bodies_of(request: dict[str, Any]) -> list[bytes]:
    """The bodies of a request; none: it has no body. Raises what the user's function raises."""
    if request["body_function"] is not None:
        module, _, name = request["body_function"].partition(":")
        function = named(module, name)
        return [encoded(function()) for _ in range(BODIES)]
    return [] if request["body"] is None else [base64.b64decode(request["body"])]


def encoded(body: Any) -> bytes:
    if isinstance(body, str):
        return body.encode()
    return bytes(body) if isinstance(body, bytes | bytearray | memoryview) else json.dumps(body).encode()
