"""What is advised, by figures: each case, and what holds of all."""

from __future__ import annotations

import dataclasses
import itertools
import random
from pathlib import Path
from typing import Any

import pytest

from clutch.control.advice import TASKS_MAX, THREADS_MAX, Facts, Pace, advise, duration
from clutch.control.looking import Look, facts_of, free_bytes, idle_seconds

FINE = Facts(
    pool="web",
    command="serve",
    profile="process",
    workers=2,
    threads=1,
    tasks=1,
    cpus=4,
    seconds=5.0,
    busy=0.2,
    taken=0.2,
    queued=0.0,
    cpu=0.3,
    cpu_wait=0.0,
    idle=3.0,
    done=50.0,
)
CROWDED = dataclasses.replace(FINE, busy=1.0, taken=1.0, queued=14.0)
SLEEPS = dataclasses.replace(CROWDED, cpu=0.06)
PACES = (Pace("handle", 32, 0.022, 32, 0.355, 7.0), Pace("rare", 1, 0.1, 1, 0.1, 7.0))
COMPETES = dataclasses.replace(
    CROWDED, profile="thread", workers=1, threads=8, cpu=0.97, cpu_wait=0.2, queued=0.0, paces=PACES, done=45.0
)
COMPUTES = dataclasses.replace(CROWDED, cpu=1.96, idle=2.0)


def with_(facts: Facts, **more: Any) -> Facts:
    return dataclasses.replace(facts, **more)


CASES: dict[str, tuple[Facts, str]] = {
    "sleeps": (SLEEPS, "slots full, CPU idle: try --threads 8"),
    "sleeps, and clients give up between the looks": (
        with_(SLEEPS, queued=0.1, gave_up=3.0),
        "slots full, CPU idle: try --threads 2",
    ),
    "sleeps, in a configuration": (
        with_(SLEEPS, command="run"),
        "slots full, CPU idle: try --set pools.web.profile=thread --set pools.web.threads=8",
    ),
    "sleeps, as jobs": (with_(SLEEPS, command="work"), "slots full, CPU idle: try --profile thread --threads 8"),
    "sleeps, in a program": (
        with_(SLEEPS, command="program"),
        "slots full, CPU idle: try profile='thread', threads=8",
    ),
    "sleeps, with more waiting than threads are of use": (
        with_(SLEEPS, queued=5000.0, cpu=0.01),
        f"slots full, CPU idle: try --threads {THREADS_MAX}",
    ),
    "sleeps, in tasks": (
        with_(SLEEPS, profile="async", tasks=8, queued=84.0),
        "slots full, CPU idle: try --worker-connections 64",
    ),
    "waits for a CPU that others use": (with_(SLEEPS, cpu_wait=1.9, idle=0.0), "nothing to advise: workers compute"),
    "competes": (
        COMPETES,
        "threads compete for the GIL: handle takes 22 ms alone, 355 ms now: try -k process --threads 1 -w 4",
    ),
    "competes, and was never alone": (
        with_(COMPETES, paces=(Pace("handle", 0, None, 32, 0.355, 7.0),)),
        "threads compete for the GIL: handle takes 355 ms beside 7 others: try -k process --threads 1 -w 4",
    ),
    "competes, and waits too": (
        with_(COMPETES, paces=(Pace("handle", 9, 0.1, 9, 0.8, 7.0),), done=90.0),
        "threads compete for the GIL: handle takes 100 ms alone, 800 ms now: try -w 4",
    ),
    "without the GIL": (with_(COMPETES, gil=False, cpu=4.0), "nothing to advise: slots are 100 % busy and nobody"),
    "threads that compute beside each other": (with_(COMPETES, cpu=3.5), "nothing to advise"),
    "threads that would, on a machine that others use": (with_(COMPETES, cpu=1.0, cpu_wait=6.5), "nothing to advise"),
    "no slower than alone": (with_(COMPETES, paces=(Pace("handle", 9, 0.3, 9, 0.355, 7.0),)), "nothing to advise"),
    "as many workers as CPUs": (with_(COMPETES, cpus=1), "nothing to advise"),
    "no memory for more": (with_(COMPETES, worker_bytes=1 << 30, free_bytes=1 << 20), "nothing to advise"),
    "memory for one more": (
        with_(COMPUTES, worker_bytes=1 << 30, free_bytes=3 << 29),
        "workers compute all the time, and 4 CPUs may be used: try -w 3",
    ),
    "computes": (COMPUTES, "workers compute all the time, and 4 CPUs may be used: try -w 4"),
    "computes, on all CPUs": (with_(COMPUTES, cpus=2, idle=0.0), "nothing to advise: all CPUs that may be used are"),
    "computes, beside others": (with_(COMPUTES, idle=0.1), "nothing to advise: workers compute all the time, 14 wait"),
    "an async tool": (
        with_(SLEEPS, runs_async="tick", command="run"),
        "an async tool on process: one stream at a time (tick waits 97 % of its time): "
        "try --set pools.web.profile=async",
    ),
    "an async app": (
        with_(SLEEPS, runs_async=""),
        "an async app on process: one stream at a time (it waits 97 % of its time): try -k async",
    ),
    "an async tool that computes": (
        with_(COMPUTES, runs_async="crunch"),
        "workers compute all the time, and 4 CPUs may be used: try -w 4",
    ),
    "an async tool that nobody waits for": (with_(FINE, runs_async="tick"), "nothing to advise"),
    "blocked": (
        with_(FINE, profile="async", tasks=256, cpu=0.02, blocked=("GET /", 15.0)),
        "GET / blocks its event loop: it waits without await, and 15 wait behind it; use await or asyncio.to_thread",
    ),
    "computes in a loop": (
        with_(FINE, profile="async", tasks=256, workers=1, cpu=1.0, taken=0.1, blocked=("GET /", 15.0)),
        "workers compute all the time, and 4 CPUs may be used: try -w 4",
    ),
    "fine": (FINE, "nothing to advise: slots are 20 % busy and nobody waits for one, CPU 30 % of 4"),
    "not ready": (with_(SLEEPS, workers=0, state="failing"), "nothing to advise: no worker is ready"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_advised(case: str) -> None:
    facts, sentence = CASES[case]
    found = advise(facts)
    assert found.sentence.startswith(sentence)
    assert found.is_plain != sentence.startswith("nothing"), found


def anything(seed: int) -> Facts:
    draw = random.Random(seed)
    profile = draw.choice(["process", "thread", "async", "greenlet"])
    workers = draw.choice([0, 1, 2, 8, 64])
    threads = draw.choice([1, 2, 8, 64]) if profile == "thread" else 1
    tasks = draw.choice([1, 16, 1024]) if profile in ("async", "greenlet") else 1
    alone, beside = draw.choice([None, 0.0, 0.01]), draw.choice([None, 0.01, 1.0])
    return Facts(
        pool="p",
        command=draw.choice(["serve", "run", "work", "program"]),
        profile=profile,
        workers=workers,
        threads=threads,
        tasks=tasks,
        cpus=draw.choice([1, 2, 64]),
        seconds=draw.choice([0.1, 5.0]),
        busy=draw.choice([0.0, 0.5, 1.0]),
        taken=draw.choice([0.0, 0.5, 1.0, 3.0]),
        queued=draw.choice([0.0, 0.6, 40.0, 1e6]),
        cpu=draw.choice([0.0, 0.01, 0.97, 1.9, 64.0]),
        cpu_wait=draw.choice([0.0, 0.5, 8.0]),
        idle=draw.choice([None, 0.0, 3.0]),
        done=draw.choice([0.0, 1.0, 1e5]),
        gil=draw.random() < 0.7,
        runs_async=draw.choice([None, "", "tick"]),
        blocked=draw.choice([None, ("x", 3.0)]),
        paces=(Pace("f", draw.choice([0, 9]), alone, draw.choice([0, 9]), beside, draw.choice([None, 7.0])),),
        worker_bytes=draw.choice([None, 1 << 20]),
        free_bytes=draw.choice([None, 0, 1 << 34]),
        gave_up=draw.choice([0.0, 0.0, 4.2]),
    )


def test_whatever_the_figures_are_the_advice_changes_something_and_is_within_bounds() -> None:
    kinds = set()
    for seed in range(20_000):
        facts = anything(seed)
        found = advise(facts)
        kinds.add(found.kind)
        options = dict(found.options)
        now = {name: getattr(facts, name) for name in options}
        assert options != now or not options, facts
        assert "\n" not in found.sentence + facts.line()
        if found.kind == "slots":
            assert facts.is_full
        for name, most in (("threads", THREADS_MAX), ("tasks", TASKS_MAX), ("workers", facts.cpus)):
            assert int(options.get(name, 1)) <= most, facts
        if "workers" in options:
            assert int(options["workers"]) > facts.workers
        if not found.is_plain:
            assert not options and found.sentence.startswith("nothing to advise: ")
    assert kinds == {"nothing", "slots", "gil", "async", "workers", "blocked loop"}


def test_nobody_who_waits_for_nothing_is_told_to_add_slots() -> None:
    for busy, cpu in itertools.product((0.1, 0.9, 1.0), (0.0, 0.5)):
        assert not advise(with_(FINE, busy=busy, taken=busy, cpu=cpu)).is_plain


def test_times_are_short() -> None:
    assert [duration(each) for each in (0.00002, 0.0221, 0.355, 1.5)] == ["20 µs", "22.1 ms", "355 ms", "1.5 s"]


# Looks to figures


def page(run_s: float, cpu_s: float, done: int, running: list[str], sent: int = 2, **more: Any) -> dict[str, Any]:
    ran = [{"what": what} for what in running]
    worker = {"pid": 7, "sent": sent, "running": ran, "rss": 5 << 20, "private": None, "cpu_wait_s": cpu_s / 2}
    shape = {"profile": "thread", "workers": 1, "threads": 2, "tasks": 1}
    counts = {"queued": 3, "blocked": 1, "sent": sent, "slots": 2, "ready": 1, "gave_up": done}
    pool = {"name": "api", "state": "ready", "shape": shape, "image": {"gil": True}, "company": [], **counts}
    pool |= {"run_s": run_s, "cpu_s": cpu_s, "done": done, "workers": [worker], **more}
    return {"config": "/srv/clutch.toml", "cpus": 2, "pools": [pool]}


def test_figures_are_what_changed_between_the_looks() -> None:
    looks = [Look(page(10.0, 1.0, 5, ["f"]), 100.0, 50.0), Look(page(18.0, 3.0, 25, ["f"]), 105.0, 52.0, 1 << 30)]
    (facts,) = facts_of(looks)
    assert (facts.busy, facts.taken, facts.queued) == (0.8, 1.0, 4.0)
    assert (facts.cpu, facts.cpu_wait, facts.idle, facts.done) == (0.4, 0.2, 0.4, 4.0)
    assert (facts.command, facts.cpus, facts.threads, facts.worker_bytes) == ("run", 2, 2, 5 << 20)
    assert ", slots 100 % busy, 4 wait, 4 a second give up, CPU 40 % of 2" in facts.line()
    nobody = dataclasses.replace(facts, queued=0.0)
    assert "100 % busy, 4 a second give up, CPU" in nobody.line()
    assert "nobody waits, CPU" in dataclasses.replace(nobody, gave_up=0.0).line()


def test_slots_that_ran_all_the_time_are_busy_though_the_looks_saw_less_sent_to_them() -> None:
    """As requests are that workers read by themselves, in their first tenth of a second."""
    (facts,) = facts_of([Look(page(at * 2.0, 0.0, 1, [], sent=0), float(at)) for at in range(2)])
    assert (facts.busy, facts.taken) == (1.0, 1.0)


def test_who_started_it_is_known() -> None:
    def command(**more: Any) -> str:
        pages = [{**page(1.0, 1.0, 1, []), **more} for _ in range(2)]
        for one in pages:
            one["pools"][0]["image"] = {"interface": one.get("interface")}
        return facts_of([Look(one, float(at)) for at, one in enumerate(pages)])[0].command

    assert command() == "run"
    assert command(config="/srv/shop:app", interface="wsgi") == "serve"
    assert command(config="/srv/tasks") == "work"
    assert command(config="/srv/job.py", is_program=True) == "program"


def test_what_another_version_says_is_passed_over() -> None:
    first = Look(page(1.0, 1.0, 1, []), 1.0)
    old = page(1.0, 1.0, 1, [])
    del old["pools"][0]["run_s"]
    assert facts_of([first, Look(old, 2.0)]) == []
    assert facts_of([first, first]) == [], "no time has passed"
    assert facts_of([Look({**first.page, "pools": []}, 0.0), first]) == [], "a pool that has just begun"


def test_async_tools_are_known_by_what_runs() -> None:
    image = {"gil": True, "async_tools": ["tick"]}
    for running, expected in ((["tick", "tick (item 3 of 4 of a map)"], "tick"), (["f"], None), ([], None)):
        looks = [Look(page(1.0, 1.0, 1, running, image=image), at) for at in (1.0, 2.0)]
        assert facts_of(looks)[0].runs_async == expected
    looks = [Look(page(1.0, 1.0, 1, [], image={"interface": "asgi"}), at) for at in (1.0, 2.0)]
    assert facts_of(looks)[0].runs_async == ""


def test_a_loop_is_blocked_if_each_look_finds_it_so() -> None:
    shape = {"profile": "async", "workers": 1, "threads": 1, "tasks": 64}

    def blocked(*counts: tuple[int, int]) -> tuple[str, float] | None:
        looks = [
            Look(page(1.0, 0.0, 1, ["GET /"] * running, sent=sent, shape=shape), float(at))
            for at, (running, sent) in enumerate(counts)
        ]
        return facts_of(looks)[0].blocked

    assert blocked((1, 9), (1, 7)) == ("GET /", 7.0)
    assert blocked((1, 9), (9, 9)) is None, "tasks run beside each other"
    assert blocked((1, 9), (1, 1)) is None, "nothing waits behind it"


def test_idle_time_and_memory_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert idle_seconds(tmp_path) is None and free_bytes(tmp_path) is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text("cpu  9 9 9 999 9\ncpu0 1 1 1 300 100 1\ncpu1 1 1 1 500 100 1\nintr 5\n")
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    1024 kB\n")
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {1})
    monkeypatch.setattr("os.sysconf", lambda name: 100)
    assert (idle_seconds(tmp_path), free_bytes(tmp_path)) == (6.0, 1 << 20)
