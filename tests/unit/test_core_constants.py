"""Numbers that the configuration repeats, since it may not import the extension."""

from __future__ import annotations

from clutch import _core
from clutch.config import options
from clutch.tools import CHECKS


def test_most_workers_are_as_many_in_the_core():
    assert options.WORKERS_MAX == _core.WORKERS_MAX


def test_priorities_are_the_same_in_the_core():
    is_priority, _ = CHECKS["priority"]
    allowed = [priority for priority in range(-20, 21) if is_priority(priority)]
    assert (allowed[0], allowed[-1]) == (-_core.PRIORITY_MAX, _core.PRIORITY_MAX)


def test_ends_of_jobs_are_states_of_jobs():
    assert _core.JOB_STATES[-len(_core.JOB_ENDS) :] == _core.JOB_ENDS
