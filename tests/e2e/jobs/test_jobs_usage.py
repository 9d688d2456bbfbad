"""What people who operate jobs are told: why a job is dead, and what is wrong with what they typed or wrote."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import clutch
from support.clutch_process import COMMAND, Dispatcher, soon
from support.clutch_process import clutch as command

TOOLS = """
import clutch
from clutch import tool

@tool(retry=3, give_up_on=("LookupError", "no_such_package.Error"))
def give_up(): raise KeyError("x")

@tool(retry=3, retry_on=(OSError,))
def other(): raise ValueError("y")

@tool(retry=3)
def kill(): raise clutch.Dead("no such address")

@tool(retry=0)
def once(): raise ValueError("z")

@tool(retry=3)
def needs(what: int): ...
"""


@pytest.mark.parametrize(
    ("tool", "why"),
    [
        ("give_up", "its tool gives up on LookupError (give_up_on)"),
        ("other", "its tool is not retried on ValueError (retry_on)"),
        ("kill", "clutch.Dead"),
        ("once", "that was its only attempt (retry=0)"),
        ("needs", "its arguments do not fit its tool"),
        ("late", "its deadline has passed"),
    ],
)
def test_a_dead_job_says_why_it_is_not_tried_again(tmp_path: Path, tool: str, why: str, any_store: str) -> None:
    (tmp_path / "shop.py").write_text(TOOLS)
    jobs = clutch.Jobs(any_store)
    if any_store.startswith("sidekiq") and tool == "late":
        pytest.skip("the format has no deadlines")
    deadline = 0 if tool == "late" else None
    job = jobs.options(retry=0 if tool == "once" else 3, deadline=deadline).enqueue(tool)
    with Dispatcher(tmp_path, [*COMMAND, "work", "shop", "--workers", "1", "--store", any_store]) as server:
        server.err.wait(rf"job {job} .*it is dead: {re.escape(why)}")
        server.err.wait("tool 'give_up': give_up_on 'no_such_package.Error': there is no module 'no_such_package'")
        if not any_store.startswith("sidekiq"):  # whose format has no place for it
            soon(lambda: (found := jobs.get(job)) is not None and found.state == "dead")
            shown = command("jobs", "show", job, "--store", any_store, cwd=tmp_path).stdout
            assert f"reason        {why}\n" in shown


def test_a_misspelt_name_of_an_exception_keeps_a_target_from_starting(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "import configparser\nfrom clutch import tool\n\n"
        "@tool(retry_on=('configparser.NoSectionErorr',))\ndef f(): ...\n"
    )
    done = command("work", "shop", "--store", "sqlite:///jobs.db", cwd=tmp_path)
    said = (
        "tool 'f': retry_on 'configparser.NoSectionErorr': 'configparser' is imported, and has no 'NoSectionErorr'; "
        "did you mean configparser.NoSectionError?"
    )
    assert (done.returncode, said in done.stderr, "Traceback" in done.stderr) == (2, True, False), done.stderr
