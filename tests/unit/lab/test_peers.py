"""The pure parts of `clutch compare`: who is chosen, how rounds are paired, what is told of an installation."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clutch.errors import ConfigError
from clutch.lab.benching import Bench, Cell
from clutch.lab.comparing import Verdict
from clutch.lab.contender import Contender
from clutch.lab.drivers import marks
from clutch.lab.load import Figures, Load
from clutch.lab.peers import comparison as comparing
from clutch.lab.peers import packages, registry
from clutch.lab.peers.comparison import BESIDE, Comparison, cost_s, groups, take
from clutch.lab.peers.seam import Face, Peer, environment
from clutch.lab.peers.shown import compare_report
from clutch.lab.work import Work


class Other(Peer):
    faces = ("calls",)
    settings = "none"

    def __init__(self, name: str, requirements: tuple[str, ...] = ()) -> None:
        self.name, self.requirements = name, requirements

    def order(self, work: Work, face: Face, workers: int) -> dict[str, Any]:
        raise NotImplementedError


def figures(units: int, cpu_s: float, load_cpu_s: float = 0.0) -> Figures:
    return Figures(units, 1.0, cpu_s, load_cpu_s, {}, {"50": 0.001}, 0, 0, 1_000_000, [])


def test_every_peer_says_how_it_runs() -> None:
    peers = registry.everyone()
    assert len({peer.name for peer in peers}) == len(peers)
    assert all(peer.settings and peer.faces for peer in peers)
    assert all((peer.store is not None) == ("jobs" in peer.faces) for peer in peers)


def test_peers_are_chosen_by_name_or_its_first_word() -> None:
    assert [peer.name for peer in registry.chosen("asgi", "granian,hypercorn")] == [
        "granian st",
        "granian mt",
        "hypercorn",
    ]
    assert all("calls" in peer.faces for peer in registry.chosen("calls", "all"))
    with pytest.raises(ConfigError, match=r"--peers grunicorn: nobody of that name for wsgi; there are gunicorn"):
        registry.chosen("wsgi", "granian,grunicorn")


def test_a_newer_python_is_asked_for_in_words() -> None:
    peer = Other("later")
    assert peer.lacks() is None
    type(peer).needs_python = (sys.version_info.major, sys.version_info.minor + 1)
    try:
        assert peer.lacks() == f"it needs Python {sys.version_info.major}.{sys.version_info.minor + 1}"
    finally:
        type(peer).needs_python = (3, 11)


def test_a_folder_is_of_one_python_and_of_what_was_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CLUTCH_PEERS", str(tmp_path))
    one, other = Other("queue fast", ("queue",)), Other("queue slow", ("queue", "more"))
    first, second = packages.folder_of(one), packages.folder_of(other)
    assert first is not None and second is not None and first != second
    assert first.parent == tmp_path and first.name.startswith(f"queue-{packages.python_tag()}-")
    assert packages.folder_of(Other("of Python")) is None


def test_a_failure_is_kept_and_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CLUTCH_PEERS", str(tmp_path))
    peer = Other("queue", ("no-such-package",))
    tried: list[list[str]] = []

    def run(command: list[str]) -> str:
        tried.append(command)
        return "ERROR: there is none"

    monkeypatch.setattr(packages, "run", run)
    for words in ("ERROR: there is none$", "a while ago"):
        with pytest.raises(packages.NotInstalled, match=words):
            packages.install(peer)
    assert len(tried) == 1 and tried[0][-1] == "no-such-package"
    assert [one.suffix for one in tmp_path.iterdir()] == [".failed"], "nothing half made is there"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("warning: old\nERROR: No matching distribution found for x\n", "ERROR: No matching distribution found for x"),
        ("ERROR: one\nerror: failed-wheel-build\n  ╰─> mayu\n", "error: failed-wheel-build ╰─> mayu"),
        ("it went wrong\nsomehow\n", "somehow"),
        ("", "the installer has failed without a word"),
    ],
)
def test_the_reason_of_an_installer(said: str, reason: str) -> None:
    assert packages.reason_in(said) == reason


def test_a_peers_packages_come_before_all_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine")
    monkeypatch.chdir(tmp_path)
    assert environment(Path("/packages"))["PYTHONPATH"] == f"/packages:{tmp_path}:/mine"
    assert environment(None)["PATH"].startswith(str(Path(sys.executable).parent))


def test_each_group_has_clutch_in_it() -> None:
    peers: list[Peer] = [Other(str(nr)) for nr in range(BESIDE + 1)]
    contenders = {peer.name: Contender(peer.name, {}, Load(1)) for peer in peers}
    ours = Contender("clutch", {}, Load(1))
    found = groups(peers, {None: ours}, contenders)
    assert [(clutch.name, len(group)) for clutch, group in found] == [("clutch", BESIDE), ("clutch", 1)]
    assert groups([], {None: ours}, {}) == [(ours, [])]


def test_a_peer_is_compared_with_clutch_of_its_own_rounds() -> None:
    comparison = Comparison(Bench("tools:f", "calls", 1.0, {}), [Other("other")])
    for slower, name in ((1, "other"), (7, "another")):
        part = Bench("tools:f", "calls", 1.0, {})
        part.cells["clutch"] = Cell([figures(1000 // slower, 0.1 / slower, 0.1 / slower)] * 8, 0.1)
        part.cells[name] = Cell([figures(500 // slower, 0.3 / slower, 0.1 / slower)] * 8, 0.1)
        take(comparison, part, "clutch")
    assert list(comparison.bench.cells) == ["clutch", "other", "another"]
    assert len(comparison.bench.cells["clutch"].rounds) == 16
    for pair in comparison.pairs.values():
        assert pair.rate is not None and pair.cost is not None
        assert pair.rate.median == pytest.approx(0.5, rel=0.01) and pair.faster is Verdict.WORSE
        assert pair.cost.median == pytest.approx(4.0, rel=0.02) and pair.dearer is Verdict.BETTER


def test_a_peer_that_fails_halfway_keeps_the_rounds_that_both_played() -> None:
    comparison = Comparison(Bench("tools:f", "jobs", 1.0, {}), [Other("other")])
    part = Bench("tools:f", "jobs", 1.0, {}, failed={"other": "it is gone"})
    part.cells = {"clutch": Cell([figures(10, 0.1)] * 8, 0.1), "other": Cell([figures(10, 0.1)] * 3, 0.1)}
    take(comparison, part, "clutch")
    pair = comparison.pairs["other"]
    assert pair.cost is not None and pair.cost.rounds == 3 and pair.dearer is Verdict.ALIKE
    assert comparison.bench.failed == {"other": "it is gone"}


def test_calls_cost_what_the_calling_program_uses_too() -> None:
    one = figures(10, 0.1, 0.2)
    assert cost_s(one, "calls") == pytest.approx(0.03) and cost_s(one, "requests") == pytest.approx(0.01)
    assert cost_s(figures(0, 0.1), "calls") is None


@pytest.mark.parametrize("lost", [1, 6])
def test_cpu_time_that_is_not_known_is_no_advantage(lost: int) -> None:
    """A process that ends takes with it what it has used: the difference of two sums was negative once."""
    comparison = Comparison(Bench("tools:f", "jobs", 1.0, {}), [Other("other")])
    theirs = [figures(10, 0.4)] * (6 - lost) + [replace(figures(10, 0.0), ended=1)] * lost
    part = Bench("tools:f", "jobs", 1.0, {})
    part.cells = {"clutch": Cell([figures(10, 0.1)] * 6, 0.1), "other": Cell(theirs, 0.1)}
    take(comparison, part, "clutch")
    pair = comparison.pairs["other"]
    assert pair.dearer is Verdict.ALIKE, "five rounds tell nothing"
    assert pair.rate is not None and pair.rate.rounds == 6
    if pair.cost is not None:
        assert pair.cost.rounds == 6 - lost and pair.cost.low == pytest.approx(4.0)
    text = compare_report(comparison, 2).as_text()
    assert f"other: processes of it ended in {lost} of 6 rounds, whose CPU time is left out" in text


def test_a_report_says_who_is_dearer_and_with_which_settings() -> None:
    comparison = Comparison(
        Bench("tools:f", "calls", 1.0, {}),
        [Other("other")],
        {"other": {"other-package": "1.2"}},
        left_out={"third": "it needs Python 3.99"},
    )
    part = Bench("tools:f", "calls", 1.0, {})
    part.cells = {"clutch": Cell([figures(1000, 0.1)] * 8, 0.1), "other": Cell([figures(500, 0.2)] * 8, 0.1)}
    take(comparison, part, "clutch")
    report = compare_report(comparison, 2)
    text = report.as_text()
    assert "dearer than Clutch, by CPU time: other" in text and "slower" in text
    assert "other: none\n    other-package 1.2\nleft out, third: it needs Python 3.99" in text
    assert report.data["pairs"]["other"]["cost"]["verdict"] == "better"


def test_too_few_rounds_are_no_verdict() -> None:
    comparison = Comparison(Bench("tools:f", "calls", 1.0, {}), [Other("other")])
    part = Bench("tools:f", "calls", 1.0, {})
    part.cells = {"clutch": Cell([figures(1000, 0.1)] * 7, 0.1), "other": Cell([figures(500, 0.2)] * 7, 0.1)}
    take(comparison, part, "clutch")
    report = compare_report(comparison, 2)
    assert report.advice[0] == "Warning: fewer than 8 rounds: no verdict is possible on other"
    assert "too few rounds" in report.as_text() and "not distinguishable" not in report.as_text()


@pytest.mark.parametrize("whole", [0, 3])
def test_an_interrupt_keeps_what_is_whole(monkeypatch: pytest.MonkeyPatch, whole: int) -> None:
    def play(part: Bench, *_: Any) -> None:
        if whole:
            part.cells["clutch"] = Cell([figures(10, 0.1)] * whole, 0.1)
        raise KeyboardInterrupt

    monkeypatch.setattr(comparing, "play", play)
    comparison, ours = Comparison(Bench("tools:f", "calls", 1.0, {})), Contender("clutch", {}, Load(1))
    with pytest.raises(KeyboardInterrupt) if not whole else contextlib.nullcontext():
        comparing.compare(comparison, {None: ours}, {}, 8, lambda _: None)
    assert [len(cell.rounds) for cell in comparison.bench.cells.values()] == [whole] * bool(whole)


def test_marks_are_whole_and_taken_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "marked_work.py").write_text("def f(n): assert n == 3\nasync def g(n): assert n == 4\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert marks.count(tmp_path) == 0
    for name, n in (("f", 3), ("g", 4)):
        for variable, value in marks.environment("marked_work", name, tmp_path).items():
            monkeypatch.setenv(variable, value)
        marks.the_function.cache_clear()
        marks.job(n=n)
    assert marks.native() is marks.job_async
    assert marks.count(tmp_path) == 2
    assert all(began <= ended for began, ended in marks.take(tmp_path))
    assert marks.count(tmp_path) == 0
    marks.the_function.cache_clear()
    marks.the_file.cache_clear()
