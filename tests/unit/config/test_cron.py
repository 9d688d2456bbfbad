"""Entries of periodic jobs: how they are read, what is refused and how, and what the core gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from clutch import config
from clutch._dispatcher.schedules import next_ticks
from clutch.errors import ConfigError, Problem

JOBS = """
[pools.shop]
target = "shop.tasks"
[stores.main]
url = "sqlite:///jobs.db"
[fronts.jobs]
"""
ENTRY = '[cron.x]\ntool = "report"\n'
OTHER = JOBS + '[stores.other]\nurl = "sqlite:///other.db"\n'
SIDEKIQ = JOBS.replace("sqlite:///jobs.db", "sidekiq://localhost") + ENTRY + "every = 5\n"


def load(folder: Path, text: str, *settings: str) -> config.Config:
    file = folder / "clutch.toml"
    file.write_text(text)
    return config.load(file, environ={}, settings=settings)


def problems_of(folder: Path, text: str) -> dict[str, Problem]:
    with pytest.raises(ConfigError) as raised:
        next_ticks(load(folder, text).cron)
    return {problem.place: problem for problem in raised.value.problems}


def test_an_entry_reaches_the_fronts_of_its_store(tmp_path: Path) -> None:
    text = f"""{JOBS}
    [cron.nightly]
    schedule = "0 3 * * MON-FRI"
    zone = "Europe/Berlin"
    tool = "report"
    args = [7]
    kwargs = {{ language = "de", to = ["ann", "bob"] }}
    queue = "mail"
    priority = 2
    retry = 3
    backoff = "1m"
    deadline = "1h"
    tags = ["billing"]
    overlap = "wait"
    misfire = "skip"
    """
    loaded = load(tmp_path, text)
    (entry,) = loaded.cron
    assert entry.core == {
        "name": "nightly",
        "schedule": "0 3 * * MON-FRI",
        "every_ms": None,
        "zone": "Europe/Berlin",
        "misfire": "skip",
        "overlap": "wait",
        "deadline_ms": 3_600_000,
        "job": {
            "tool": "report",
            "arguments": {"args": [7], "kwargs": {"language": "de", "to": ["ann", "bob"]}},
            "queue": "mail",
            "priority": 2,
            "attempts_max": 4,
            "backoff": {"kind": "constant", "ms": 60_000},
            "tags": ["billing"],
        },
    }
    assert [front["cron"] for front in loaded.jobs.values()] == [[entry.core]]
    ((_, tick),) = next_ticks(loaded.cron)
    assert (tick.hour, tick.minute, tick.weekday() < 5) == (3, 0, True)
    assert tick.utcoffset() is not None


def test_defaults(tmp_path: Path) -> None:
    (entry,) = load(tmp_path, JOBS + ENTRY + 'every = "5m"\n').cron
    assert (entry.core["every_ms"], entry.core["zone"], entry.core["overlap"]) == (300_000, "UTC", "skip")
    assert entry.core["job"]["attempts_max"] == 1
    ((_, tick),) = next_ticks([entry])
    assert tick.timestamp() % 300 == 0


def test_a_queue_that_no_front_here_takes_from_is_warned_of(tmp_path: Path) -> None:
    entry = JOBS + 'queues = ["mail", "default"]\n' + ENTRY + "every = 5\n"
    (warning,) = load(tmp_path, entry + 'queue = "mial"\n').warnings
    assert warning == (
        "cron.x.queue: no front here takes from queue mial of store main, only from default, mail; its jobs wait until "
        "another process takes from it; did you mean mail?"
    )
    assert load(tmp_path, entry + 'queue = "mail"\n').warnings == []


def test_settings_alone_make_an_entry(tmp_path: Path) -> None:
    settings = ("cron.x.schedule=*/5 * * * *", "cron.x.tool=report", "cron.x.kwargs={ n = 1 }")
    (entry,) = load(tmp_path, JOBS, *settings).cron
    assert (entry.core["schedule"], entry.core["job"]["arguments"]["kwargs"]) == ("*/5 * * * *", {"n": 1})


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        (JOBS + '[cron.x]\nschedule = "@daily"\n', "cron.x.tool", "is missing"),
        (JOBS + ENTRY, "cron.x.schedule", "is missing"),
        (JOBS + ENTRY + 'every = "0.5s"\n', "cron.x.every", "invalid value"),
        (JOBS + ENTRY + 'every = 5\nschedule = "@daily"\n', "cron.x.every", "schedule is also given"),
        (JOBS + ENTRY + 'every = 5\nzone = "UTC"\n', "cron.x.zone", "in no zone"),
        (JOBS + ENTRY + "every = 5\nargs = [2026-05-01]\n", "cron.x.args", "invalid value"),
        (JOBS + ENTRY + "every = 5\nkwargs = { n = nan }\n", "cron.x.kwargs", "invalid value"),
        (JOBS + ENTRY + "every = 5\nargs = 7\n", "cron.x.args", "invalid value"),
        (JOBS + ENTRY + "every = 5\npriority = 10\n", "cron.x.priority", "invalid value"),
        (JOBS + ENTRY + 'every = 5\noverlap = "alow"\n', "cron.x.overlap", "invalid value"),
        (JOBS + ENTRY + 'every = 5\nstore = "mian"\n', "cron.x.store", "no such store"),
        (JOBS + ENTRY + "every = 5\nretries = 5\n", "cron.x.retries", "no such option"),
        (OTHER.replace("jobs]", 'jobs]\nstore = "main"') + ENTRY + "every = 5\n", "cron.x.store", "is missing"),
        (
            OTHER.replace("jobs]", 'jobs]\nstore = "main"') + ENTRY + 'every = 5\nstore = "other"\n',
            "cron.x",
            "no front runs the jobs of its store",
        ),
        (SIDEKIQ, "cron.x.store", "no place for periodic jobs"),
        (JOBS + '[cron."a b"]\ntool = "report"\nevery = 5\n', "cron.a b", "not a name for periodic jobs"),
        (JOBS + ENTRY + 'schedule = "0 3 * *"\n', "cron.x.schedule", "fields"),
        (JOBS + ENTRY + 'schedule = "0 25 * * *"\n', "cron.x.schedule", "out of bounds"),
        (JOBS + ENTRY + 'schedule = "0 3 30 2 *"\n', "cron.x.schedule", "there is no such time"),
        (JOBS + ENTRY + 'schedule = "@daily"\nzone = "Europe/Berln"\n', "cron.x.zone", "no such time zone"),
        (JOBS + ENTRY + f'every = 5\ntags = ["{"x" * 1000}"]\n', "cron.x", "tags"),
    ],
)
def test_refused(tmp_path: Path, text: str, place: str, what: str) -> None:
    assert what in problems_of(tmp_path, text)[place].what


def test_what_is_wrong_with_schedules_is_told_at_once_with_what_is_allowed(tmp_path: Path) -> None:
    wrong = '[cron.y]\ntool = "report"\nschedule = "@daily"\nzone = "Europe/Berln"\n'
    problems = problems_of(tmp_path, JOBS + ENTRY + 'schedule = "x"\n' + wrong)
    assert set(problems) == {"cron.x.schedule", "cron.y.zone"}
    assert "0 3 * * MON-FRI" in (problems["cron.x.schedule"].allowed or "")
    assert (problems["cron.x.schedule"].given, problems["cron.y.zone"].nearest) == ("'x'", "Europe/Berlin")
