"""Whether loads show what a server really did: one of known latency, one that freezes, one that nobody can measure."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from clutch.lab.load import Figures, Load
from clutch.lab.setting import Setting
from clutch.lab.trial import Trial
from clutch.lab.work import Calls

SERVER = Path(__file__).with_name("simulated.py")
DELAY_SECONDS = 0.05
FREEZE_SECONDS = 1.0
RATE = 200.0
SECONDS = 5.0


def served(freeze_s: float) -> dict[str, Any]:
    command = [sys.executable, str(SERVER), "{port}", str(DELAY_SECONDS), "1", str(freeze_s)]
    return {"kind": "tcp", "command": command, "message": list(b"ping\n"), "until": list(b"\n"), "is_clutch": False}


def measured(freeze_s: float, load: Load) -> Figures:
    with Trial("simulated", served(freeze_s)) as trial:
        return trial.measure(load, SECONDS)


@pytest.mark.parametrize("is_poisson", [False, True])
def test_a_known_latency_is_shown_as_it_is(is_poisson: bool) -> None:
    figures = measured(0.0, Load(200, RATE, is_poisson))
    if figures.spoiled or figures.others_cpu_s / figures.wall_s > 0.5:
        pytest.skip("other programs kept the CPUs busy, so that the server itself was late")
    assert figures.units == pytest.approx(RATE * SECONDS, rel=0.2)
    # What asyncio and the sockets take comes on top; the percentile itself is right to three digits.
    assert DELAY_SECONDS <= figures.latency_s["50"] < DELAY_SECONDS * 1.1


def test_failure_49_a_freeze_is_in_the_p99_of_an_open_loop() -> None:
    """Of RATE × SECONDS requests those of the frozen second wait: the longest for all of it, so that the p99 is the
    freeze less 1 % of the duration, whatever the rest took."""
    figures = measured(FREEZE_SECONDS, Load(1000, RATE))
    expected = FREEZE_SECONDS - 0.01 * SECONDS
    assert figures.latency_s["99"] > expected, figures
    longest = max(figures.series, key=lambda part: part[2])
    assert longest[2] >= FREEZE_SECONDS, "the freeze is in the series"


def test_a_closed_loop_hides_it() -> None:
    """Why a rate can be given: one client sends one late request, which is not in its p99."""
    figures = measured(FREEZE_SECONDS, Load(2))
    assert figures.latency_s["90"] < FREEZE_SECONDS / 2 and figures.latency_s["99.9"] >= FREEZE_SECONDS


def test_failure_50_a_rate_that_cannot_be_offered_makes_the_run_invalid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work.py").write_text("def nothing():\n    pass\n")
    monkeypatch.chdir(tmp_path)
    setting = Setting("thread", 1, threads=1)
    with Trial("calls", Calls("work", "nothing").order(setting)) as trial:
        figures = trial.measure(Load(100, rate=5_000_000), 0.3)
    assert figures.spoiled and "of the calls that were due could be made" in figures.spoiled
