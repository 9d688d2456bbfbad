"""What people type who come from another job queue, at `clutch work` and `clutch jobs`, and what they are told."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from clutch.cli import COMMANDS as OWN_COMMANDS
from clutch.cli import program
from clutch.cli.celery_line import BY_NAME
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
        (["-n", "w1@%h"], "of Celery: write --node w1@%h"),
        (["--max-memory-per-child=200000"], "write --recycle-memory 200000KB"),
        (["--time-limit", "1.5"], "write --deadline 1.5s"),
        (["-l", "FATAL"], "write --log-level error"),
        (["-b", "redis://broker/1"], "write CELERY_BROKER_URL=redis://broker/1 before the command"),
        (["--soft-time-limit", "20"], "leave it out: set task_soft_time_limit = 20 in the app"),
    ],
)
def test_options_of_other_workers_are_answered(typed: list[str], words: str) -> None:
    assert words in refused("work", "shop", *typed)


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("-A proj -c 8 -Q a,b -l INFO", "clutch work proj --workers 8 --queues a,b --log-level info"),
        ("-A proj worker -P gevent -c100", "clutch work proj --profile greenlet --workers 1 --tasks 100"),
        ("-A proj worker -P threads", "clutch work proj --profile thread --workers 1"),
        ("--app=proj.celery:app worker --autoscale=8,2", "clutch work proj.celery:app --workers 2-8"),
        ("-A proj worker -c 4 --autoscale 8,2 -n w1@%h", "clutch work proj --workers 2-8 --node w1@%h"),
        (
            "-A proj -b redis://broker/1 worker -P solo",
            "CELERY_BROKER_URL=redis://broker/1 clutch work proj --workers 1",
        ),
    ],
)
def test_a_line_of_celery_is_answered_with_one(typed: str, line: str) -> None:
    assert refused("work", *typed.split()).endswith(f"in place of celery worker, write: {line}\n")


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("-A proj worker -l info", "in place of celery worker, write: clutch work proj --log-level info\n"),
        ("celery -A proj worker", "in place of celery worker, write: clutch work proj\n"),
        ("worker -A proj", "in place of celery worker, write: clutch work proj\n"),
        ("worker", "did you mean: clutch work MODULE"),
        ("beat -A proj", "those of a Celery app are run by `celery beat`"),
        ("-A proj status", "No such option"),
    ],
)
def test_commands_of_celery_are_answered(typed: str, words: str) -> None:
    assert words in refused(*typed.split())


def test_what_a_line_leaves_out_is_said() -> None:
    typed = "-A proj worker --soft-time-limit 20 -c 2 -E --pidfile /run/w1.pid"
    said = refused("work", *typed.split())
    assert "write: clutch work proj --workers 2\n" in said
    assert "without --soft-time-limit: set task_soft_time_limit = 20 in the app\n" in said
    assert "without -E: set worker_send_task_events = True" in said
    assert "without --pidfile: `clutch stop`" in said


def test_every_option_of_celery_worker_is_known() -> None:
    commands = pytest.importorskip("celery.bin.celery")
    options = [one for one in (*commands.celery.params, *commands.worker.params) if isinstance(one, click.Option)]
    assert len(options) > 40
    for option in options:
        flag = BY_NAME[option.opts[0]] if option.name not in ("version", "help") else None
        if flag is not None:
            assert set(option.opts) <= set(flag.names)
            assert flag.has_value is not option.is_flag


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
