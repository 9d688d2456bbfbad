"""Clients that are slow, or only there."""

from __future__ import annotations

import time

from benches.hostile.attack import Attack, Bounds, Target
from benches.hostile.clients import Crowd, answers, connect, get, ticks

_PATIENCE = 1.5
"""Less than head_timeout, which ends some of the idle connections."""

_ADMIN = ("--set", "fronts.admin.bind=127.0.0.1:{admin}")


def slowloris(target: Target) -> str:
    """Heads that never end, a line a second."""
    with Crowd(target.port, 500) as crowd:
        crowd.say(b"GET / HTTP/1.1\r\nHost: h\r\n")
        for _ in ticks(target.seconds, 1.0):
            crowd.say(b"X-A: b\r\n")
            crowd.hear()
        assert not crowd.open, f"still there after {target.seconds} s: {crowd}"
        return str(crowd)


def bytewise(target: Target) -> str:
    """Heads of one byte each half second."""
    with Crowd(target.port, 300) as crowd:
        for byte, _ in zip(get("/") * 100, ticks(target.seconds, 0.5), strict=False):
            crowd.say(bytes([byte]))
            crowd.hear()
        assert not crowd.open, f"still there after {target.seconds} s: {crowd}"
        return str(crowd)


def idle(target: Target) -> str:
    """Connections that ask once and stay, in three rounds."""
    shown = []
    for _ in range(3):
        with Crowd(target.port, 700) as crowd:
            crowd.say(get("/"))
            for _ in ticks(target.seconds / 3, 0.2):
                crowd.hear()
            shown.append(str(crowd))
    return "; ".join(dict.fromkeys(shown))


def beyond_connections_max(target: Target) -> str:
    """Twice as many as may be: of those beyond, some get 503, none waits."""
    with Crowd(target.port, 400) as crowd:
        for _ in ticks(2.0, 0.2):
            crowd.hear()
        return str(crowd)


def out_of_descriptors(target: Target) -> str:
    """More idle connections than the server may have descriptors; then a large response on one from before."""
    before = connect(target.port)
    with Crowd(target.port, 300) as crowd, before:
        for _ in ticks(1.0, 0.2):
            crowd.hear()
        before.sendall(get("/large?1000000", "Connection: close"))
        large = answers(before, 5.0)
        began = time.monotonic()
        with connect(target.port) as late:
            late.sendall(get("/ping", "Connection: close"))
            newcomer = answers(late, 3.0)
        waited = time.monotonic() - began
        shown = f"large response {large}, newcomer {newcomer} after {waited:.1f} s; idle: {crowd}"
        assert large in ([200], [503]), shown
        assert newcomer in ([200], [503]), shown
        assert waited < _PATIENCE, shown
        return shown


def admin_unread(target: Target) -> str:
    """Pages of metrics asked for in a row and never read: readiness must stay."""
    host = f"127.0.0.1:{target.admin_port}"
    with Crowd(target.admin_port, 256, receive_bytes=4096) as crowd:
        for _ in ticks(target.seconds, 0.5):
            crowd.say(get("/metrics", host=host) * 50)
        with connect(target.admin_port) as asking:
            asking.sendall(get("/readyz", "Connection: close", host=host))
            ready = answers(asking, 3.0)
        crowd.hear()
        shown = f"/readyz {ready}; {crowd}"
        assert ready == [200], shown
        return shown


ATTACKS = [
    Attack("slowloris", slowloris),
    Attack("heads byte by byte", bytewise),
    # Each is held by a worker once it has asked.
    Attack("idle connections", idle, Bounds(left_mb=80, workers_descriptors=820), quick=True),
    Attack(
        "beyond connections_max", beyond_connections_max, Bounds(failed_max=1_000), options={"connections_max": "200"}
    ),
    Attack("out of descriptors", out_of_descriptors, Bounds(failed_max=1_000), descriptors_max=256, quick=True),
    Attack("metrics unread", admin_unread, flags=_ADMIN, quick=True),
]
