"""The pure parts of what drives work: when calls are due, what is counted, what an order says."""

from __future__ import annotations

import itertools
import json
import os
import random
import statistics
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from clutch.errors import ConfigError
from clutch.lab.benching import Bench, Cell, against, apart_cautions, beside, cautions
from clutch.lab.comparing import Verdict
from clutch.lab.drivers.calls import Closed, dues, found, series
from clutch.lab.drivers.program import Wrong
from clutch.lab.drivers.served import between_bursts, bodies_of, encoded
from clutch.lab.generator import Latencies
from clutch.lab.load import Figures, Load, latencies_of, typical
from clutch.lab.setting import Setting
from clutch.lab.work import App, Calls, Request, Url, serve_flags


def test_calls_are_due_evenly_or_as_independent_clients_come() -> None:
    assert list(dues(Load(1, rate=4.0), 1.0)) == [0.0, 0.25, 0.5, 0.75]
    random = list(dues(Load(1, rate=1000.0, is_poisson=True, seed=3), 10.0))
    gaps = [after - before for before, after in itertools.pairwise(random)]
    assert statistics.mean(gaps) == pytest.approx(0.001, rel=0.05)
    assert statistics.stdev(gaps) == pytest.approx(0.001, rel=0.1), "exponential: deviation and mean are the same"
    assert random == list(dues(Load(1, rate=1000.0, is_poisson=True, seed=3), 10.0))


def test_a_window_over_bursts_has_neither_one_more_nor_one_less() -> None:
    """Four slots, calls of 0.5 s: bursts of four. What is counted begins with the end of the first burst."""
    run: Any = Closed.__new__(Closed)
    run.ends = [(burst / 2 + nr * 1e-4, 1.0) for burst in range(1, 8) for nr in range(4)]
    run.ramped, run.until, run.began = 4, 2.2, 0.0
    kept, wall = run.counted()
    assert len(kept) == 12 and len(kept) / wall == pytest.approx(8.0, rel=1e-3)
    run.until = 0.6
    assert run.counted()[0] == []


def test_calls_that_outlast_the_ramp_count_from_the_beginning() -> None:
    """Slots have been busy since then; a window that began later would show a rate of many times the truth."""
    run: Any = Closed.__new__(Closed)
    run.ends, run.ramped, run.until, run.began = [(1.05, 1.05), (1.051, 1.05)], 0, 2.0, 0.0
    kept, wall = run.counted()
    assert len(kept) / wall == pytest.approx(1.9, rel=0.01)


def test_a_series_has_all_units_and_the_longest_latency() -> None:
    ends = [(0.1 * nr, 0.001 * nr) for nr in range(1, 101)]
    parts = list(series(ends, 0.0, 10.0))
    assert sum(units for _, units, _ in parts) == 100 and parts[-1][0] == pytest.approx(10.0)
    assert max(longest for _, _, longest in parts) == pytest.approx(0.1)
    assert list(series([], 0.0, 1.0)) == []


def test_percentiles_are_right_to_three_digits() -> None:
    latencies = Latencies()
    latencies.record_many([nr / 1000 for nr in range(1, 1001)])
    shown = latencies_of(latencies.report(), 1000)
    for percentile, seconds in {"50": 0.5, "90": 0.9, "99": 0.99, "99.9": 0.999}.items():
        assert shown["latency_s"][percentile] == pytest.approx(seconds, rel=0.002)


def test_rounds_together_have_the_percentiles_of_all_their_latencies() -> None:
    draw = random.Random(3)
    samples = [[draw.lognormvariate(-4 + 0.3 * (nr % 3), 1) for _ in range(50 + 10 * nr)] for nr in range(30)]
    rounds = []
    for values in samples:
        latencies = Latencies()
        latencies.record_many(values)
        rounds.append(figures(units=len(values), **latencies_of(latencies.report(), len(values))))
    found, everything = typical(rounds).latency_s, sorted(itertools.chain(*samples))
    for percentile, most in {"50": 0.01, "90": 0.01, "99": 0.03, "99.9": 0.2}.items():
        true = everything[min(len(everything) - 1, int(len(everything) * float(percentile) / 100))]
        assert found[percentile] == pytest.approx(true, rel=most), percentile
    assert typical(rounds).curve[-1][1] == pytest.approx(everything[-1], rel=0.001)


def test_what_is_no_function_is_refused() -> None:
    assert found("os.path", "join") is os.path.join
    with pytest.raises(Wrong, match="cannot be called"):
        found("os", "sep")
    module: Any = SimpleNamespace()
    fastapi = pytest.importorskip("fastapi")
    module.app = fastapi.FastAPI()
    sys.modules["an_app_of_a_test"] = module
    with pytest.raises(Wrong, match="--path"):
        found("an_app_of_a_test", "app")


def test_orders() -> None:
    assert Calls("m", "f").order(Setting("thread", 2, threads=3))["slots"] == 6
    assert serve_flags(Setting("async", 2, threads=2, tasks=8)) == [
        *("-k", "async", "-w", "2", "--threads", "2"),
        *("--worker-connections", "8"),
    ]
    assert serve_flags(Setting("auto", 1)) == ["-w", "1"]
    order = App("m:app", (Request("/a", body=b"\x00\xff"),)).order(Setting("process", 1))
    assert bodies_of(order["requests"][0]) == [b"\x00\xff"]
    assert Url("http://[::1]:8000/").order(None)["host"] == "::1"
    with pytest.raises(ConfigError, match="allowed is http://"):
        Url("https://example.org/").order(None)


@pytest.mark.parametrize(
    ("body", "sent"), [("é", "é".encode()), (b"x", b"x"), ({"a": 1}, b'{"a": 1}'), (bytearray(b"y"), b"y")]
)
def test_bodies_of_functions(body: Any, sent: bytes) -> None:
    assert encoded(body) == sent


def figures(**more: Any) -> Figures:
    seen = {"units": 100, "wall_s": 1.0, "cpu_s": 0.1, "load_cpu_s": 0.1, "errors": {}, "latency_s": {"50": 0.01}}
    return Figures(**{**seen, "switches": 0, "forced": 0, "pss_bytes": 1, "cpus": [0], **more})


def test_the_ideal_of_a_cell_is_by_slots_or_by_cpus() -> None:
    alone = figures(run_s=0.01, cpu_s=0.1)
    assert Cell([figures()], 0.1, alone, slots=4).ideal(cpus=2) == pytest.approx(400)
    assert Cell([figures(cpu_s=1.0)], 0.1, figures(run_s=0.01, cpu_s=1.0), slots=400).ideal(2) == pytest.approx(200)
    assert Cell([figures()], 0.1, None, slots=4).ideal(2) is None


def test_a_load_that_was_the_limit_and_a_busy_machine_are_told() -> None:
    bench = Bench("w", "calls", 1.0, {})
    bench.cells["a"] = Cell([figures(spoiled="it was late"), figures(others_cpu_s=0.9)], 0.1)
    bench.cells["b"] = Cell([figures(others_cpu_s=0.9)], 0.1)
    said = cautions(bench)
    assert said[0] == "not valid, a (1 of 2 rounds): it was late" and "0.90 CPUs" in said[1]


def test_a_reason_is_told_once_with_its_smallest_and_largest_figures() -> None:
    reasons = ["calls were 1,204.5 ms late (p99)", "calls were 9.0 ms late (p99)", "calls were 30 ms late (p99)"]
    bench = Bench("w", "calls", 1.0, {})
    bench.cells["a"] = Cell([figures(spoiled=reason) for reason in reasons], 0.1)
    bench.cells["b"] = Cell([figures(), figures(spoiled=reasons[2]), figures(spoiled="another {}")], 0.1)
    assert cautions(bench) == [
        "not valid, a, b (1 of 3 rounds): calls were 9.0–1,204.5 ms late (p99)",
        "not valid, b (1 of 3 rounds): another {}",
    ]


def test_work_that_does_not_keep_up_with_its_rate_is_told() -> None:
    bench = Bench("w", "calls", 1.0, {})
    bench.cells["a"] = Cell([figures(offered=100.0)], 0.1)
    bench.cells["b"] = Cell([figures(offered=200.0)], 0.1)
    (said,) = cautions(bench)
    assert said.startswith("b: of 200/s that were offered 100/s were done")


def saved(cpu_s: float, *, units: int = 100, **more: Any) -> Bench:
    bench = Bench("w", "calls", 1.0, {"CPUs": "2 of 2"})
    draw = random.Random(units)
    noisy = (1 + 0.01 * draw.random() for _ in range(10))
    bench.cells["a"] = Cell([figures(cpu_s=cpu_s * f, units=units, **more) for f in noisy], 0.1)
    return bench


def test_a_regression_shows_in_cpu_time_or_in_rates() -> None:
    kept = saved(0.1)
    assert against(saved(0.13), kept)["a"].verdict is Verdict.WORSE
    assert against(saved(0.05, units=50), kept)["a"].verdict is Verdict.WORSE, "it waits for longer"
    assert against(saved(0.1), kept)["a"].verdict is Verdict.ALIKE
    assert against(saved(0.07), kept)["a"].verdict is Verdict.BETTER


def test_beside_other_programs_rates_tell_nothing_where_the_cpus_are_the_limit() -> None:
    busy: dict[str, Any] = {"others_cpu_s": 0.5, "idle_s": 0.0}
    kept = saved(0.1, **busy)
    assert against(saved(0.05, units=50, **busy), kept)["a"].verdict is Verdict.ALIKE
    assert against(saved(0.2, **busy), kept)["a"].verdict is Verdict.WORSE
    told = against(saved(0.2, others_cpu_s=0.0), kept)["a"]
    assert told.verdict is Verdict.ALIKE and not told.told, "the machine was another one"
    kept = saved(0.001, others_cpu_s=0.5, idle_s=1.0)
    assert against(saved(0.001, units=10, idle_s=1.0), kept)["a"].verdict is Verdict.WORSE, "it only waits"


def test_what_fails_now_and_what_is_slower_at_its_rate_is_worse() -> None:
    kept = saved(0.1)
    broken = Bench("w", "calls", 1.0, {}, failed={"a": "ValueError"})
    assert against(broken, kept)["a"].verdict is Verdict.WORSE
    slow, quick = saved(0.1, offered=100.0, latency_s={"50": 0.05}), saved(0.1, offered=100.0, latency_s={"50": 0.01})
    assert against(slow, quick)["a"].verdict is Verdict.WORSE and against(quick, quick)["a"].verdict is Verdict.ALIKE


def test_twins_are_compared_in_the_rounds_that_both_have_played() -> None:
    bench = saved(0.13)
    bench.cells["b"] = saved(0.1).cells["a"]
    assert beside(bench, {"a": "b"})["a"].verdict is Verdict.WORSE
    assert beside(bench, {"b": "a"})["b"].verdict is Verdict.BETTER


def test_memory_that_grows_is_told() -> None:
    bench = Bench("w", "calls", 1.0, {})
    bench.cells["leaks"] = Cell([figures(pss_bytes=(50 + 3 * nr) << 20) for nr in range(10)], 0.1)
    bench.cells["stays"] = Cell([figures(pss_bytes=(50 + nr % 2) << 20) for nr in range(10)], 0.1)
    (said,) = cautions(bench)
    assert said.startswith("leaks: its memory grew from 56 to")


def test_what_is_saved_can_be_read() -> None:
    bench = Bench("w", "calls", 1.0, {"CPUs": "2"}, packages={"x": "1"})
    bench.cells["a"] = Cell([figures(curve=[(50.0, 0.01)], series=[(0.1, 1, 0.01)])], 0.1, figures(), {"workers": 1}, 1)
    assert Bench.of_data(json.loads(json.dumps(bench.as_data()))) == bench


@pytest.mark.parametrize("period", [4, 7, 10])
def test_requests_that_end_in_bursts_are_counted_between_them(period: int) -> None:
    """Eight slots, each answering once in a period."""
    parts = [(8 if nr and nr % period == 0 else 0, 0.0) for nr in range(50)]
    kept = between_bursts(parts, first=8, ramp=0)
    assert sum(count for count, _ in kept) / len(kept) == pytest.approx(8 / period)


def test_without_a_whole_burst_what_comes_after_the_ramp_counts() -> None:
    assert between_bursts([(1, 0.0)] * 50, first=40, ramp=5) == [(1, 0.0)] * 45
    assert between_bursts([(0, 0.0)] * 50, first=8, ramp=50) == [(0, 0.0)]


def test_a_machine_that_is_slower_now_excuses_as_much() -> None:
    slow: dict[str, Any] = {"pace_s": 0.0013}
    kept = saved(0.1, pace_s=0.001)
    assert against(saved(0.13, **slow), kept)["a"].verdict is Verdict.ALIKE
    assert against(saved(0.3, **slow), kept)["a"].verdict is Verdict.WORSE
    assert "30% slower than when" in apart_cautions(saved(0.13, **slow), kept)[0]
