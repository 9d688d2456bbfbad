"""Each preset end to end, as short as it can be: its tables have their rows, and figures that can be right."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from clutch.lab import presets
from clutch.lab.load import Load
from clutch.lab.presets import drain, enqueue, grid, profiles, tcp
from clutch.lab.report import Report

needs_redis = pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is not installed")


@pytest.fixture
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (enqueue, grid, tcp):
        monkeypatch.setitem(module.ROUNDS, "small", 1)
        monkeypatch.setitem(module.SECONDS, "small", 0.1)
    monkeypatch.setattr(enqueue, "CALLERS", (Load(1), Load(24)))
    monkeypatch.setattr(tcp, "CLIENTS", (Load(1), Load(2)))
    monkeypatch.setattr(tcp, "PLACES", 4)
    monkeypatch.setattr(grid, "PEERS", ())
    monkeypatch.setattr(grid, "ENDPOINTS", ("/async/small",))
    monkeypatch.setitem(grid.WORKERS, "small", (1, 2))
    monkeypatch.setattr(drain, "PEERS", ())
    monkeypatch.setitem(drain.SIZES, "small", drain.Size(20, 0.02, (5,)))
    monkeypatch.setattr(profiles, "PEERS", ())
    monkeypatch.setitem(profiles.SIZES, "small", profiles.Size(2, 1, 2, 50, 1, 0.1, 0.3, 0.3, (2,)))


def run(name: str) -> Report:
    return presets.run(name, "small", lambda _: None)


@needs_redis
def test_enqueue(briefly: None) -> None:
    report = run("enqueue")
    names = [row[0] for row in report.sheets[0].lines]
    assert {f"Clutch {strategy}" for strategy in enqueue.STRATEGIES} <= set(names)
    assert report.sheets[0].headings == ["enqueues/s of each caller", "1 caller", "24 callers"]
    for by in report.data.values():
        for one in by.values():
            assert one["cpu_s"] / one["units"] > 10e-6, "the CPU time of all callers, from the first to the last"


@needs_redis
def test_drain(briefly: None) -> None:
    report = run("drain")
    rows = [row[0] for row in report.sheets[0].lines]
    assert rows[0] == "ideal" and {"Clutch thread", "Clutch process"} <= set(rows)
    assert all(one["units"] == 20 and not one["errors"] for by in report.data.values() for one in by.values())


def test_tcp(briefly: None) -> None:
    report = run("tcp")
    rows = {row[0] for row in report.sheets[0].lines}
    assert {"Clutch async 1", "plain thread", "plain asyncio", "plain process"} <= rows
    assert any(one.title.startswith("which CPU") for one in report.sheets)


def test_grid(briefly: None) -> None:
    report = run("grid")
    measured: dict[str, Any] = report.data["/async/small"]["Clutch"]
    assert set(measured) == {f"{workers}×{threads}" for workers in (1, 2) for threads in (1, 2)}
    assert all(one["units"] > 0 and not one["errors"] for one in measured.values())


def test_profiles(briefly: None) -> None:
    report = run("profiles")
    heads = [one.headings[0] for one in report.sheets]
    for part in ("echo", "product", "mixed", "memory", "a rate that can be had", "more than can be had"):
        assert part in heads, heads
    assert any(head.startswith("start, s") for head in heads)
