"""What `make bench-serve` decides and reads, without a server: turns, candidates, wrk's page, the grid, placement."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from benches import harness, table
from benches.serve import contest, contestants, load, placement, scenario
from benches.serve.load import Figures
from benches.serve.rows import MODULES, grid, tcp
from benches.serve.scenario import Cell, Contestant, Scenario, Shape
from benches.serve.server import module, varied

WRK = """Running 1s test @ http://127.0.0.1:8000/
  1 threads and 100 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     2.18ms    1.03ms  20.71ms   88.00%
  Latency Distribution
     50%    1.97ms
     75%  910.00us
     90%    3.10ms
     99%    1.20s
  46405 requests in 1.00s, 6.10MB read
Requests/sec:  46405.66
Transfer/sec:      6.10MB
"""


def test_every_other_round_goes_backwards() -> None:
    assert "".join(harness.turns("abc", 3)) == "abccbaabc"


def test_wrk_is_read_in_one_unit() -> None:
    assert load.parsed(WRK) == Figures(46405.66, 1.97, 1200.0)


@pytest.mark.parametrize("error", ["  Non-2xx or 3xx responses: 3", "  Socket errors: connect 0, read 1"])
def test_what_wrk_counts_as_errors_is_no_figure(error: str) -> None:
    with pytest.raises(RuntimeError, match="wrk saw errors"):
        load.parsed(f"{WRK}{error}\n")


def test_what_wrk_counts_under_a_disturbed_load() -> None:
    errors = "  Socket errors: connect 1, read 20, write 3, timeout 7\n  Non-2xx or 3xx responses: 5\n"
    found = load.outcome(f"{WRK}{errors}")
    assert found == load.Outcome(answered=46405, not_2xx=5, refused=1, broken_off=23, timed_out=7)
    assert found.failed == 5 + 1 + 23
    assert load.outcome(WRK).failed == 0


def test_a_page_of_wrk_without_a_figure_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="no 99th percentile"):
        load.parsed(re.sub(r"\s*99%.*", "", WRK))


def test_the_best_candidate_is_taken_and_all_are_told() -> None:
    server = module("peer", "peer")
    rates = {varied(server, "--fast"): 20.0, varied(server, "--slow"): 10.0, varied(server): 15.0}
    best, told = contest.best_of(list(rates), rates.__getitem__)
    assert best.command[-1] == "--fast"
    assert told == "peer: tried --fast 20/s, --slow 10/s, defaults 15/s; took --fast"


def test_the_best_peer_is_never_clutch() -> None:
    samples = {"clutch": [9.0, 9.0], "granian": [4.0, 6.0], "uvicorn": [3.0, 1.0]}
    assert contest.best_peer(samples, "clutch") == "granian"
    assert contest.best_peer(samples, "clutch", lowest=True) == "uvicorn"


def test_ours_comes_first_in_a_comparison_wherever_it_was_sampled() -> None:
    report = harness.Report()
    samples = {"granian": [10.0] * 6, "clutch": [20.0] * 6}
    contest.judge(report, "no-op", "/s", samples, "clutch", {"granian": harness.more(1.4)})
    (line,) = report.lines
    assert (line.ours, line.peer, line.ratio, line.met) == (20.0, 10.0, 2.0, True)


def test_peers_alone_have_figures_and_no_ratio() -> None:
    report = harness.Report()
    contest.judge(report, "no-op", "/s", {"granian": [10.0]}, "clutch", {"granian": harness.more(1.4)})
    assert not report.lines
    assert report.notes == ["no-op: granian 10 /s [10, 10], 1 sample(s)"]


def test_every_row_can_be_imported_and_run() -> None:
    for name in MODULES.values():
        assert callable(__import__(name, fromlist=["run"]).run), name


# The grid


WITH = Contestant("with", True, ("/a", "/b"))
WITHOUT = Contestant("without", False, ("/b",))
SMALL = Scenario((WITH, WITHOUT), (1, 2), (1, 3), ("/a", "/b"), seconds=1)


@contextlib.contextmanager
def served(shape: Shape) -> Iterator[Shape]:
    if shape == Shape(WITH, 2, 3):
        raise RuntimeError("does not start")
    yield shape


def measured(shape: Shape, endpoint: str, seconds: int) -> Figures:
    assert seconds == 1
    if endpoint == "/b" and shape == Shape(WITH, 1, 3):
        raise RuntimeError("fails under load")
    return Figures(100.0 * shape.workers + shape.threads, 1.0, 2.0)


def test_a_server_without_threads_is_measured_once_for_each_number_of_workers() -> None:
    shapes = [(shape.contestant.name, shape.workers, shape.threads) for shape in scenario.shapes(SMALL)]
    expected = [("with", 1, 1), ("without", 1, 0), ("with", 1, 3), ("with", 2, 1), ("without", 2, 0), ("with", 2, 3)]
    assert shapes == expected


def test_a_cell_that_fails_says_why_and_the_others_are_measured() -> None:
    found = list(scenario.cells(SMALL, served, measured))
    failed = {(cell.workers, cell.threads, cell.endpoint): cell.failure for cell in found if cell.failure}
    assert failed == {(1, 3, "/b"): "fails under load", (2, 3, "/a"): "does not start", (2, 3, "/b"): "does not start"}
    assert len(found) == 4 * 2 + 2 * 1


def test_the_grid_is_shown_with_workers_down_and_threads_across() -> None:
    first, *_ = scenario.sheets(SMALL, list(scenario.cells(SMALL, served, measured)))
    assert first.headings == ["", "1 thread(s)", "3 thread(s)"]
    assert first.lines == [["1 worker(s)", "101 (1/2)", "103 (1/2)"], ["2 worker(s)", "201 (1/2)", "failed"]]


def test_the_best_cell_of_each_contestant() -> None:
    found = list(scenario.cells(SMALL, served, measured))
    best = [(cell.contestant, cell.workers, cell.threads) for cell in scenario.best(found, "/b")]
    assert best == [("with", 2, 1), ("without", 2, 0)]


def test_a_contestant_that_failed_everywhere_is_not_best() -> None:
    assert scenario.best([Cell("with", 1, 1, "/a", None, "does not start")], "/a") == []


def test_s1_has_five_by_five_for_whoever_has_both_settings() -> None:
    sizes = [shape for shape in scenario.shapes(grid.S1) if shape.contestant.name == contestants.CLUTCH]
    assert len(sizes) == 25
    for shape in scenario.shapes(grid.S1):
        assert grid.server_of(shape).name == shape.contestant.name


def test_a_quick_grid_is_a_corner_of_the_full_one() -> None:
    full, quick = grid.chosen(harness.FULL), grid.chosen(harness.QUICK)
    assert full == grid.S1
    assert set(quick.workers) < set(full.workers) and quick.contestants == full.contestants


# Placement


def test_a_thread_is_shown_where_it_ran_and_only_when_it_did() -> None:
    seen = placement.Placement()
    worker, late = (1, 1), (1, 2)
    seen.add({worker: (0, 0)}, {worker: (5, 0)})
    seen.add({worker: (5, 0)}, {worker: (9, 1), late: (3, 0)})
    seen.add({worker: (9, 1), late: (3, 0)}, {worker: (9, 1), late: (8, 1)})
    seen.add({worker: (9, 1), late: (8, 1)}, {late: (9, 1)})
    assert {thread: placement.shown(cpus) for thread, cpus in seen.cpus.items()} == {worker: "01··", late: "··11"}
    assert seen.busy() == seen.cpus


def test_a_thread_that_hardly_ran_is_not_busy() -> None:
    seen = placement.Placement(samples=10, cpus={(1, 1): [0] + [None] * 9, (1, 2): [1, 1] + [None] * 8})
    assert list(seen.busy()) == [(1, 2)]


def test_the_cpu_is_read_whatever_the_name_holds() -> None:
    fields = [str(nr) for nr in range(3, 53)]
    assert placement.processor(f"12 (a ) b) {' '.join(fields)}") == 39
    assert placement.processor(Path("/proc/self/stat").read_text()) in range(os.cpu_count() or 1)


# Servers and sheets


def test_sheets_are_aligned() -> None:
    report = {"lines": [], "notes": ["a note"], "skipped": None}
    sheet = {"title": "title", "headings": ["", "one"], "lines": [["a", "1,000"], ["bb", "2"]]}
    shown = table.rendered([{**report, "sheets": [sheet]}])
    assert shown.splitlines() == ["title", "─────────", "      one", "a   1,000", "bb      2", "", "a note"]


def test_lines_of_one_report_are_aligned() -> None:
    line = {"work": "echo", "unit": "/s", "ours": 10_000, "peer": 9.5, "peer_name": "peer", "met": False}
    line |= {"ratio": 1.5, "low": 1.25, "high": 2, "bar": "≥ 2 ×"}
    shown = table.compared({"lines": [line, {**line, "work": "echo of more", "met": True}]})
    assert shown.splitlines() == [
        "  echo          10,000 /s  peer  9.5 /s  1.5 [1.25, 2]  ≥ 2 ×  NO",
        "  echo of more  10,000 /s  peer  9.5 /s  1.5 [1.25, 2]  ≥ 2 ×  yes",
    ]
    assert table.compared({"lines": []}) == ""


def test_a_cell_of_tcp_is_judged_by_cpu_time_and_by_rate() -> None:
    model = tcp.MODELS[1]
    cell = tcp.ModelSamples(model, 4, [model.ours, *model.plain])
    cell.cpu_us |= {"clutch": [10.0] * 20, "plain asyncio": [9.0] * 20, "plain uvloop": [20.0] * 20}
    cell.rates |= {"clutch": [500.0] * 20, "plain asyncio": [100.0] * 20, "plain uvloop": [200.0] * 20}
    report = harness.Report()
    cell.judge(report)
    cpu, rate = report.lines
    assert (cpu.work, cpu.peer_name, cpu.ratio, cpu.met) == (
        "TCP, asyncio, 4 client(s): CPU a message",
        "plain asyncio",
        0.9,
        False,
    )
    assert (rate.work, rate.peer_name, rate.ratio, rate.met) == (
        "TCP, asyncio, 4 client(s): ping-pongs",
        "plain uvloop",
        2.5,
        True,
    )
