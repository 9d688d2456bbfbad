"""What a tuning concludes from figures that are known."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from clutch.lab.load import Figures
from clutch.lab.outcome import Found, Goal
from clutch.lab.probing import Probe, space
from clutch.lab.scoring import Basis, basis_of, best_of, cpu_each_s, scores_of
from clutch.lab.setting import Setting

CPUS = 2
COMPUTES = Probe(wall_s=0.001, cpu_s=0.001, is_async=False, threads_cpus=1.0, cpus=CPUS, start_s=0.3)
WAITS = Probe(wall_s=0.01, cpu_s=0.0001, is_async=False, cpus=CPUS, start_s=0.3)
PROCESSES, THREADS, MANY = Setting("process", 2), Setting("thread", 2, threads=2), Setting("thread", 1, threads=64)


def figures(rate: float, cpu_each_s: float, **more: Any) -> Figures:
    given = {"idle_s": 0.5, "others_cpu_s": 0.0, **more}
    wall = {"units": round(rate), "wall_s": 1.0, "cpu_s": rate * cpu_each_s, "load_cpu_s": 0.0}
    seen = {"errors": {}, "latency_s": {"99": 0.01}, "switches": 0, "forced": 0, "pss_bytes": 10**7, "cpus": []}
    return Figures(**{**wall, **seen, **given})


def rounds(rate: float, cpu_each_s: float, seed: int, **more: Any) -> list[Figures]:
    draw = random.Random(seed)
    return [figures(rate * draw.lognormvariate(0, 0.03), cpu_each_s, **more) for _ in range(20)]


def chosen(played: dict[Setting, list[Figures]], probe: Probe) -> Setting:
    return best_of(scores_of(played, probe), {setting: cpu_each_s(seen) for setting, seen in played.items()})


def test_the_faster_one_wins_on_a_quiet_machine() -> None:
    played = {PROCESSES: rounds(1000, 0.001, 1), THREADS: rounds(1200, 0.001, 2)}
    assert basis_of(played, COMPUTES) is Basis.RATES and chosen(played, COMPUTES) == THREADS


@pytest.mark.parametrize("idle", [0.0, 0.2])
def test_beside_others_more_threads_get_more_of_the_cpus_and_win_nothing_by_it(idle: float) -> None:
    """The scheduler gives four threads more than two. What a unit costs is the same, so the smaller setting wins."""
    beside = {"others_cpu_s": 0.8, "idle_s": idle}
    played = {PROCESSES: rounds(800, 0.001, 1, **beside), THREADS: rounds(1200, 0.00102, 2, **beside)}
    assert basis_of(played, COMPUTES) is Basis.DISTURBED and chosen(played, COMPUTES) == PROCESSES


def test_beside_others_work_that_waits_is_still_told_by_its_slots() -> None:
    beside = {"others_cpu_s": 1.9, "idle_s": 0.0}
    played = {PROCESSES: rounds(190, 0.0001, 1, **beside), MANY: rounds(3000, 0.0001, 2, **beside)}
    assert basis_of(played, WAITS) is Basis.DISTURBED and chosen(played, WAITS) == MANY


def test_of_two_that_are_alike_the_smaller_one_wins_unless_it_takes_more_cpu_time() -> None:
    played = {PROCESSES: rounds(1000, 0.001, 1), Setting("process", 4): rounds(1000, 0.001, 2)}
    assert chosen(played, COMPUTES) == PROCESSES
    played = {PROCESSES: rounds(1000, 0.0013, 1), Setting("process", 4): rounds(1000, 0.001, 2)}
    assert chosen(played, COMPUTES) == Setting("process", 4)


def test_a_goal_is_met_by_the_percentile_and_by_all_memory() -> None:
    slow = Goal(latency_s=0.005)
    assert not slow.is_met(figures(100, 0.001)) and Goal(latency_s=0.02).is_met(figures(100, 0.001))
    assert not Goal(memory_bytes=10**6).is_met(figures(100, 0.001))
    assert not slow.is_met(figures(0, 0.001, latency_s={}))


def test_a_winner_that_does_not_reach_its_rate_again_is_told() -> None:
    found = Found(COMPUTES, PROCESSES, {}, {}, played={PROCESSES: rounds(1000, 0.001, 1)}, again=figures(700, 0.001))
    assert any("only 7" in said or "only 6" in said for said in found.cautions())


def test_the_ideal_is_bound_by_slots_and_by_cpus() -> None:
    assert WAITS.ideal(Setting("thread", 1, threads=4)) == pytest.approx(400, rel=0.02)
    assert COMPUTES.ideal(Setting("process", 8)) == pytest.approx(2000)
    assert COMPUTES.ideal(Setting("thread", 1, threads=8)) == pytest.approx(1000), "the GIL lets one thread compute"


def test_with_too_little_measured_nothing_is_sure() -> None:
    found = Found(COMPUTES, PROCESSES, {PROCESSES: figures(100, 0.001)}, {}, space=12)
    assert not found.is_sure and "only 1 of 12 settings" in found.cautions()[0]
    found = Found(
        COMPUTES, PROCESSES, {PROCESSES: figures(100, 0.001)}, {}, 1, played={PROCESSES: rounds(100, 0.001, 1)}
    )
    assert not found.is_sure, "it was not started again"
    found.again = figures(100, 0.001)
    assert found.is_sure
    assert not replace(found, is_whole=False).is_sure and not replace(found, is_goal_met=False).is_sure
    assert not replace(found, played={PROCESSES: rounds(100, 0.001, 1)[:7]}).is_sure


def test_cpu_time_decides_where_the_cpus_are_the_limit() -> None:
    """Four threads get more of two CPUs that they share with the load than two processes do."""
    busy = {"idle_s": 0.1, "load_cpu_s": 0.2}
    played = {
        PROCESSES: rounds(800, 0.001, 1, run_s=0.0011, **busy),
        THREADS: rounds(900, 0.00101, 2, run_s=0.004, **busy),
    }
    assert basis_of(played, COMPUTES) is Basis.SATURATED and chosen(played, COMPUTES) == PROCESSES
    assert basis_of(played, WAITS) is Basis.RATES


def test_the_most_hopeful_settings_come_first() -> None:
    app = Probe(0.02, 0.001, is_async=True, cpus=CPUS, start_s=1.0, interface="asgi")
    first = space(app)[0]
    assert (first.workers, first.tasks) == (2, 64) and space(WAITS)[0].slots >= 100
    assert space(COMPUTES)[0] == PROCESSES


def test_whether_threads_take_turns_is_said_where_it_is_known() -> None:
    turns, beside = (replace(COMPUTES, threads_cpus=cpus) for cpus in (1.03, 1.9))
    assert "they take turns" in " ".join(turns.sentences()) and not turns.threads_compute
    assert "beside each other" in " ".join(beside.sentences()) and beside.threads_compute
    assert "threads of one worker" not in " ".join(replace(COMPUTES, threads_cpus=None).sentences())
    assert beside.ideal(Setting("thread", 1, threads=8)) == pytest.approx(2000)


def test_cpu_time_that_nobody_knows_is_no_advantage() -> None:
    """A process that ended has taken its figure with it."""
    larger = Setting("process", 8)
    played = {PROCESSES: rounds(1000, 0.001, 1), larger: rounds(1000, 0.0, 2, ended=1)}
    assert cpu_each_s(played[larger]) is None and chosen(played, COMPUTES) == PROCESSES


def test_an_objective_is_kept_by_all_rounds_together() -> None:
    """In short rounds most have none of the slow units."""
    quick, slow = ([(0.0, 0.001), (100.0, seconds)] for seconds in (0.002, 0.2))
    seen = [figures(50, 0.001, latency_s={"99": curve[1][1]}, curve=curve) for curve in [*[quick] * 6, *[slow] * 2]]
    assert not Goal(latency_s=0.1).is_met(*seen) and Goal(latency_s=0.1).is_met(*seen[:6])
    assert Goal(latency_s=0.1).units_wanted() == 1000


def test_settings_that_do_not_fit_into_the_memory_are_left_out() -> None:
    large = replace(WAITS, whole_bytes=100 << 20, largest_bytes=80 << 20)
    assert max(one.workers for one in space(large, 200 << 20)) == 2 < max(one.workers for one in space(large))


def test_work_that_fails_in_threads_is_tried_in_processes() -> None:
    tried = space(replace(COMPUTES, threads_fail="ValueError: signal only works in main thread"))
    assert tried and not [one for one in tried if one.profile == "thread"]


@pytest.mark.parametrize("busy", [{"idle_s": 0.1}, {"idle_s": 0.1, "others_cpu_s": 0.5}])
def test_pure_python_is_never_given_one_worker_where_there_are_two_cpus(busy: dict[str, float]) -> None:
    """Its threads take turns: however little CPU time a unit takes, they have one CPU."""
    one = Setting("thread", 1, threads=4)
    turns = replace(COMPUTES, threads_cpus=1.01)
    played = {
        PROCESSES: rounds(1570, 0.00102, 1, run_s=0.0011, **busy),
        one: rounds(1130, 0.00087, 2, run_s=0.0035, delayed_s=2000.0, **busy),
    }
    assert chosen(played, turns) == PROCESSES
