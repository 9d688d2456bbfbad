"""What people type who come from another job queue, at `clutch work` and `clutch jobs`, and what they are told."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from clutch.cli import COMMANDS as OWN_COMMANDS
from clutch.cli import program
from clutch.cli.habits_of_queues import COMMANDS, OF_JOBS, OF_WORK
from clutch.cli.jobs import command as jobs


def refused(*typed: str) -> str:
    done = CliRunner().invoke(program, typed)
    assert done.exit_code == 2, done.output
    return done.stderr


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (
            ["-A", "shop"],
            "no option -A (of Celery, procrastinate): name the module of the tools as TARGET: clutch work shop",
        ),
        (["-c", "8"], "of Celery, procrastinate: write --workers 8; for jobs that wait more than they compute"),
        (["-c8"], "of Sidekiq: write --profile thread --threads 8"),
        (["-Q", "mail,default"], "write --queues mail,default"),
        (["--loglevel=INFO"], "write --log-level info"),
        (["--burst"], "leave it out: `clutch work` waits for more jobs"),
        (["--autoscale", "8,2"], "write --workers 2-8"),
        (["--autoscale", "many"], "write --workers 2-8"),
        (["--max-tasks-per-child", "100"], "write --recycle-calls 100"),
        (["-B"], "every `clutch work` runs the schedules of its store"),
        (["-t", "25"], "write --grace 25s"),
        (["--watch", "."], "write --reload"),
        (["--settings", "mysite.settings"], "write --django mysite.settings"),
    ],
)
def test_options_of_other_workers_are_answered(typed: list[str], words: str) -> None:
    assert words in refused("work", "shop", *typed)


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["list", "--status", "dead"], "write --state dead"),
        (["list", "-n", "5"], "write --limit 5"),
        (["delete", "-f"], "write --yes"),
        (["enqueue", "mul", "-1"], "write -- before values that begin with -"),
        (["enqueue", "mul", "--countdown", "10"], "write --in 10s"),
        (["cron", "--set", "cron.a.every=5"], "what that process was given is in its log"),
        (["top"], "no command 'top'; did you mean: clutch top"),
        (["purge"], "did you mean: clutch jobs delete --queue NAME, or --all"),
        (["failed"], "did you mean: clutch jobs dead"),
        (["lst"], "Did you mean 'list'?"),
    ],
)
def test_options_and_commands_of_other_queues_are_answered(typed: list[str], words: str) -> None:
    assert words in refused("jobs", *typed)


def test_the_tables_are_whole() -> None:
    for row in (*OF_WORK, *OF_JOBS):
        assert all(option.startswith("-") for option in row.options) and row.whose
        assert "{" not in row.instead
    for typed, meant in COMMANDS.items():
        first, *more = meant.replace(",", "").split()
        assert typed not in jobs.commands and first in OWN_COMMANDS, typed
        assert first != "jobs" or more[0] in jobs.commands, typed
