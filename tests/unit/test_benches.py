"""What benches decide without a process: bars, who is meant by them, and which rows are asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from benches import __main__ as launcher
from benches import playing, shown, suite, training
from benches.suite import ALONE, BEST, FULL, QUICK, Line, Row, Taken, faster, judge, more, within

from clutch.lab.load import Figures, Load

RATES = {
    "clutch": [20.0] * 8,
    "granian st": [10.0] * 8,
    "granian mt": [16.0] * 8,
    "uvicorn": [18.0] * 8,
    "floor": [40.0] * 8,
}
PEERS, OTHERS = ["granian st", "granian mt", "uvicorn"], ["floor"]


def judged(figure: str, bars: dict[str, suite.Bar], values: Any = RATES) -> list[suite.Judged]:
    return judge("work", Line(figure, bars), values, "clutch", PEERS, OTHERS)


def test_a_rate_is_compared_with_the_best_of_those_that_are_meant() -> None:
    one, best, floor = judged("rate", {"granian": more(1.25), BEST: more(1.2), "floor": more(0.8)})
    assert (one.peer_name, one.is_met, one.ratio and one.ratio.median) == ("granian mt", True, pytest.approx(1.25))
    assert (best.peer_name, best.is_met) == ("uvicorn", False)
    assert (floor.peer_name, floor.is_met) == ("floor", False)


def test_a_duration_is_compared_with_the_shortest() -> None:
    within_it, faster_than = judged("p99", {"granian": within(2), BEST: faster(0.4)})
    assert (within_it.peer_name, within_it.is_met) == ("granian st", True)
    assert (faster_than.peer_name, faster_than.is_met) == ("granian st", True)
    assert not judged("p99", {"granian": within(1.9)})[0].is_met
    assert not judged("p99", {"granian": faster(0.6)})[0].is_met


def test_a_name_stands_for_whole_words_of_others() -> None:
    assert judged("rate", {"gran": more(1)}) == []
    assert judged("rate", {"granian st": more(1)})[0].peer_name == "granian st"


def test_without_peers_of_the_lab_the_best_is_of_the_rows_own() -> None:
    [one] = judge("work", Line("rate", {BEST: more(0.4)}), RATES, "clutch", [], OTHERS)
    assert (one.peer_name, one.is_met) == ("floor", True)


@pytest.mark.parametrize(("seen", "is_met"), [([0.0, 0.0, 0.0], True), ([0.0, 1.0, 1.0], False)])
def test_a_limit_needs_no_ratio(seen: list[float], is_met: bool) -> None:
    [one] = judge("work", Line("failed", suite.at_most(0), "requests"), {"clutch": seen}, "clutch", [])
    assert (one.ratio, one.is_met, str(one.bar)) == (None, is_met, "≤ 0")


def test_verdicts_say_who_is_better_also_where_less_is_better() -> None:
    [rate] = judged("rate", {"granian": more(1)})
    [size] = judged("memory", {"granian": within(1)})
    assert rate.ratio is not None and rate.bar.verdict(rate.ratio) == "better"
    assert size.ratio is not None and size.bar.verdict(size.ratio) == "worse"


def taken(**changed: Any) -> Taken:
    known: dict[str, Any] = {"units": 10, "wall_s": 2.0, "cpu_s": 0.1, "load_cpu_s": 0.0, "errors": {}, "latency_s": {}}
    return Taken(Figures(**{**known, "switches": 0, "forced": 0, "pss_bytes": 3_000_000, "cpus": [], **changed}), 0.5)


def test_figures_are_what_a_probe_gives_or_what_the_lab_knows() -> None:
    assert Line("rate").value(taken()) == 5.0
    assert Line("cpu").value(taken()) == pytest.approx(10_000)
    assert Line("rate", unit="/s").value(taken(more={"rate": 7.0})) == 7.0
    with pytest.raises(KeyError):
        Line("unheard of").value(taken())


def test_a_report_has_the_table_the_figures_and_what_went_wrong() -> None:
    row = Row("work", (Line("rate", {BEST: more(2)}),), (suite.probe("clutch", "x:y"),))
    played = playing.Played(row, {ALONE: {"clutch": [taken()] * 3, "peer": [taken(units=8)] * 3}})
    played.judged = judge("work", row.lines[0], {"clutch": [5.0] * 3, "peer": [4.0] * 3}, "clutch", ["peer"])
    played.notes = playing.cautions({"peer": [taken(errors={"reset": 2}, spoiled="late"), taken(errors={"reset": 1})]})
    text = shown.report_of({"calls work": played}, is_quick=True).as_text()
    assert "work  5.00 /s  peer  4.00 /s  1.250 [1.250, 1.250]  not distinguishable  ≥ 2 ×   NO" in text
    assert "calls work: ! peer: late\ncalls work: ! peer: errors: 3 reset" in text
    assert "4.00 [4.00, 4.00]" in text and shown.QUICK in text


def test_loads_are_named_where_there_are_several() -> None:
    one = Row("work", (), (), loads=(Load(4),))
    assert playing.titled(one, "p99", Load(4)) == "work, p99"
    assert playing.titled(Row("work", (), (), loads=(Load(1), Load(4))), "", Load(4)) == "work, 4 at a time"
    assert playing.titled(one, "", Load(4, rate=100)) == "work, 100/s"


def test_rows_are_chosen_by_suite_by_name_and_by_how_they_begin() -> None:
    assert {name.split()[0] for name in launcher.chosen([], QUICK)} == {"calls", "serve", "jobs", "celery"}
    assert list(launcher.chosen(["serve", "memory"], FULL)) == ["serve memory"]
    assert set(launcher.chosen(["life"], FULL)) == {"serve life-reload", "serve life-recycle", "serve life-kill"}
    assert set(launcher.chosen(["jobs", "drain", "enqueue"], FULL, True)) == {"jobs drain", "jobs enqueue"}


def test_make_bench_jobs_names_rows_that_there_are() -> None:
    makefile = (Path(__file__).parents[2] / "Makefile").read_text()
    (words,) = (line.split() for line in makefile.splitlines() if "--exact $(ARGS)" in line)
    names = words[words.index("jobs") : words.index("--exact")]
    assert len(launcher.chosen(names, FULL, True)) == len(names) - 1


def test_contenders_of_a_row_have_names_of_their_own() -> None:
    for name, row in launcher.chosen([], FULL).items():
        if isinstance(row, Row):
            names = [one.name for one in (*row.ours, *row.others)]
            names += [peer if isinstance(peer, str) else peer.name for peer in row.peers]
            assert len(names) == len(set(names)), name


def test_the_training_of_builds_knows_rows_of_each_suite() -> None:
    for one, wanted in training.ROWS.items():
        names = list(one.rows(QUICK))
        unknown = [word for word in wanted if not any(name.startswith(word) for name in names)]
        # The rows over Redis are there where one can be started.
        assert unknown == ([] if "redis" not in names else ["drain", "enqueue"])
    assert {"websocket", "a body to the app", "calls, async 1×16"} <= {name for name, _ in training.contenders()}
