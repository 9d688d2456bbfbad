"""`clutch top`: rates from two looks, and what is drawn."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from clutch.cli.top import Look, event_text, pools_shown, with_rates

WORKER = {"nr": 0, "pid": 7, "state": "ready", "calls": 100, "age_s": 61.0, "rss": 9 << 20, "private": 5 << 20}
RUNNING = [
    {"id": nr, "what": f"resize_{nr}", "job": "7" if nr == 1 else None, "seconds": nr, "abandoned": False}
    for nr in range(5)
]


def look(at: float, done: int, calls: int, cpu: float, pid: int = 7, **more: Any) -> Look:
    worker = {**WORKER, "pid": pid, "calls": calls, "cpu_s": cpu, "running": RUNNING}
    counts = {"queued": 2, "sent": 1, "slots": 4, "ready": 1, "target": 2, "restarts": 3, "failed": 0, "reason": None}
    pool = {"name": "api", "state": "ready", **counts, "done": done, "workers": [worker], **more}
    return Look({"pid": 1, "config": "clutch.toml", "age_s": 5.0, "pools": [pool]}, at)


def test_rates_are_differences_by_time() -> None:
    page = with_rates(look(10.0, 500, 100, 1.0), look(12.0, 700, 140, 1.5))
    (pool,) = page["pools"]
    assert (pool["done_per_s"], pool["failed_per_s"]) == (100.0, 0.0)
    (worker,) = pool["workers"]
    assert (worker["calls_per_s"], worker["cpu"]) == (20.0, 0.25)


def test_there_are_none_without_something_to_compare_with() -> None:
    first = look(10.0, 500, 100, 1.0)
    (pool,) = with_rates(first, first)["pools"]
    assert (pool["done_per_s"], pool["workers"][0]["cpu"]) == (None, None)
    (pool,) = with_rates(first, look(11.0, 501, 1, 0.1, pid=8))["pools"]
    assert (pool["done_per_s"], pool["workers"][0]["calls_per_s"], pool["workers"][0]["cpu"]) == (1.0, None, None)
    (pool,) = with_rates(first, look(11.0, 501, 1, 0.1, name="new"))["pools"]
    assert pool["done_per_s"] is None
    (pool,) = with_rates(first, look(11.0, 3, 1, 0.1))["pools"]
    assert pool["done_per_s"] == 0.0, "a pool of the same name that has begun anew"


def test_what_is_drawn() -> None:
    console = Console(width=220, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    page = with_rates(look(10.0, 500, 100, 1.0), look(12.0, 700, 140, 1.5, reason="[bold] no [/nonsense]"))
    console.print(pools_shown(page))
    text = console.export_text()
    assert "api: ready, 1 of 2 workers; 2 queued, 1 of 4 slots; 100/s, 3 restarts" in text
    assert "[bold] no [/nonsense]" in text, "what others have written is no markup"
    assert (
        "api/0" in text
        and "25%" in text
        and "5 MB" in text
        and "resize_0 0s (call 0), resize_1 1s (job 7, call 1), resize_2 2s (call 2), and 2 more" in text
    )


def test_queues_of_jobs_are_drawn_first() -> None:
    counts = {"available": 2290, "scheduled": 3, "running": 1, "dead": 4}
    queue = {"name": "mail", "is_paused": True, **counts}
    front = {"front": "jobs", "store": "sqlite:///jobs.db", "pool": "api", "reason": None, "served": ["mail"]}
    figures = {"running": 1, "completed": 9, "retried": 0, "dead": 2, "queues": [queue]}
    before, now = look(10.0, 500, 100, 1.0), look(12.0, 700, 140, 1.5)
    now.page["jobs"] = [{**front, **figures}]
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(pools_shown(with_rates(before, now)))
    text = console.export_text()
    assert "in pool api; 1 running; since the start 9 completed, 0 retried, 2 dead" in text
    assert "mail: 2290 available, 3 scheduled, 1 running, 4 dead, paused" in text
    assert text.index("mail:") < text.index("api: ready")


@pytest.mark.parametrize(
    ("event", "text"),
    [
        ({"event": "worker_ready", "pool": "api", "nr": 0, "pid": 9}, "worker api/0 (pid 9): ready"),
        ({"event": "pool_closed", "pool": "api"}, "pool_closed pool=api"),
        ({"event": "events_missed", "count": 4}, "events_missed count=4"),
    ],
)
def test_events_are_lines_of_the_log(event: dict[str, Any], text: str) -> None:
    assert event_text(event) == text
