"""Tests that start no process and open no pool: all of them together take seconds (`make test-unit`)."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

STARTS = {"os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen"}

_running: list[str] = []


def _refuse(event: str, _arguments: object) -> None:
    if event in STARTS and _running:
        raise RuntimeError(f"{_running[-1]} starts a process ({event}): move it to tests/e2e")


sys.addaudithook(_refuse)


@pytest.fixture(autouse=True)
def _starts_no_process(request: pytest.FixtureRequest) -> Iterator[None]:
    _running.append(request.node.nodeid)
    yield
    _running.clear()
