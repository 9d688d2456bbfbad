"""Lines of the log, against what the core may tell."""

from __future__ import annotations

import logging
import re
from pathlib import Path

from clutch._dispatcher.event_log import GRACE_OVER, LEAVES, beginning, killed, running, wait

ROOT = Path(__file__).parents[2]


def reasons() -> list[str]:
    """Why workers leave, as the supervisor says it."""
    source = (ROOT / "crates/clutch-pool/src/supervisor/leave.rs").read_text()
    return re.findall(r'Leave::\w+ => "(\w+)"', source)


def test_every_reason_to_leave_has_its_words():
    assert set(reasons()) == set(LEAVES) and len(LEAVES) > 9


def test_every_reason_to_leave_is_on_the_page_of_operators():
    page = (ROOT / "docs/operating.md").read_text()
    assert [reason for reason in reasons() if f"`{reason}`" not in page] == []


def test_a_worker_that_ran_nothing_was_idle_or_starting():
    assert running({"running": [], "served": True}) == "; it was idle"
    told = {"running": [], "served": True, "held": ["GET /a", "GET /b"]}
    assert running(told) == "; it was running GET /a, GET /b"
    assert running({"running": [], "served": False}) == "; it was starting"


def test_a_worker_that_did_not_end_was_in_its_shutdown():
    source = (ROOT / "crates/clutch-pool/src/supervisor/state/escalation.rs").read_text()
    assert f'"{GRACE_OVER}"' in source
    sent = {"pool": "web", "nr": 0, "pid": 7, "signal": "SIGTERM", "reason": GRACE_OVER, "running": []}
    level, line = killed({**sent, "served": True})
    assert (level, "; it was shutting down (" in line) == (logging.WARNING, True)
    level, line = killed({**sent, "served": False})
    assert (level, line.endswith("; it was starting")) == (logging.INFO, True)


def test_the_first_line_of_a_reason_closes_its_brackets():
    assert beginning("it exited (a worker: ValueError: no\n  at line 3)") == "it exited (a worker: ValueError: no …)"
    assert beginning("it exited (with code 1)\nmore") == "it exited (with code 1)"


def test_delays_of_attempts_are_told_in_their_largest_unit():
    told = {1.0: "1 s", 1.46: "1.5 s", 22.4: "22 s", 119: "119 s", 180: "3 min", 7200: "2 h", 172_800: "2 days"}
    assert {given: wait(given) for given in told} == told
