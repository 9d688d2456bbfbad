"""The processes of one sample: agents that enqueue, and a consumer; each with its contestant's packages on its path.

A consumer is stopped by SIGTERM; what is left of its processes after that is killed, each by its pid.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benches import processes
from benches.jobs import work
from benches.jobs.contestant import Contestant

CONTESTANT, URL = "CLUTCH_BENCH_CONTESTANT", "CLUTCH_BENCH_URL"
ROOT = Path(__file__).resolve().parents[2]
AGENT_SECONDS_MAX = 300
IDLE_SECONDS_MAX = 20
"""Without a run for so long, what has not run never will."""
DRAIN_SECONDS_MAX = 180
_STOP_SECONDS_MAX = 10
_SETTLE_SECONDS = 0.3
"""Jobs that run twice do so within this time, or are not seen."""
_LOOK_UP_SECONDS = 0.005
_SHOWN_BYTES_MAX = 3_000


class PeerFailed(Exception):
    """A contestant did not do what it was asked; the message has the end of what it printed."""


def environment(folder: Path, url: str, contestant: Contestant) -> dict[str, str]:
    """Of each process of a sample."""
    paths = [str(contestant.folder), str(ROOT)]
    names = {CONTESTANT: contestant.name, URL: url, work.FOLDER_VARIABLE: str(folder)}
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | names


def agent(contestant: Contestant, folder: Path, url: str, verb: str, job: str, count: int, warm_up: int = 0) -> Any:
    """What an agent measured; see `benches.jobs.agent`."""
    command = [sys.executable, "-m", "benches.jobs.agent", verb, job, str(count), str(warm_up)]
    return _answer(command, environment(folder, url, contestant), contestant.name)


def floor(packages: Path, *arguments: str) -> Any:
    """What `benches.jobs.floors` measured, with these packages on its path."""
    command = [sys.executable, "-m", "benches.jobs.floors", *arguments]
    return _answer(command, os.environ | {"PYTHONPATH": os.pathsep.join([str(packages), str(ROOT)])}, "floor")


def _answer(command: list[str], variables: dict[str, str], name: str) -> Any:
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=variables, capture_output=True, timeout=AGENT_SECONDS_MAX, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired as late:
        raise PeerFailed(f"{name}: not done after {AGENT_SECONDS_MAX} s: {' '.join(command[2:])}") from late
    if done.returncode != 0:
        raise PeerFailed(f"{name}: {done.stderr[-_SHOWN_BYTES_MAX:].decode(errors='replace')}")
    return json.loads(done.stdout.splitlines()[-1])


@dataclass(frozen=True)
class Consumer:
    """A consumer that runs, and the folder in which its jobs leave their marks."""

    process: subprocess.Popen[bytes]
    folder: Path
    output: Any
    name: str

    @property
    def pid(self) -> int:
        return self.process.pid

    def runs(self) -> int:
        """How many jobs have run."""
        return marks(self.folder)

    def wait_runs(self, count: int) -> bool:
        """Wait until so many have run; False when nothing ran for too long, or all took too long."""
        seen, moved = -1, time.monotonic()
        end = moved + DRAIN_SECONDS_MAX
        while (runs := self.runs()) < count:
            if runs != seen:
                seen, moved = runs, time.monotonic()
            if self.process.poll() is not None:
                raise PeerFailed(f"{self.name}: its consumer ended by itself: {self.tail()}")
            if time.monotonic() > min(end, moved + IDLE_SECONDS_MAX):
                return False
            time.sleep(_LOOK_UP_SECONDS)
        return True

    def tail(self) -> str:
        """The end of what it printed."""
        self.output.seek(0)
        return self.output.read()[-_SHOWN_BYTES_MAX:].decode(errors="replace")


@contextlib.contextmanager
def consumer(contestant: Contestant, folder: Path, url: str, slots: int) -> Iterator[Consumer]:
    """A consumer of its own session, from its start to its end."""
    command = [sys.executable, *contestant.consumer(url, slots)]
    variables = environment(folder, url, contestant) | contestant.environment(slots)
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=variables,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=processes.die_with_parent,
        )
        try:
            yield Consumer(process, folder, output, contestant.name)
        finally:
            stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, then SIGKILL to those of its tree that are still there."""
    tree = processes.tree(process.pid) if process.poll() is None else []
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_SECONDS_MAX)
    for pid in tree:
        if _session(pid) == process.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    process.wait()


def _session(pid: int) -> int | None:
    """Tells a process of the tree from another that was given its pid meanwhile."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """For the marks of one sample, and a database when it needs one."""
    with tempfile.TemporaryDirectory(prefix="clutch-bench-jobs-") as name:
        (Path(name) / work.MARKS).touch()
        yield Path(name)


def marks(place: Path) -> int:
    """How many jobs have run."""
    return (place / work.MARKS).stat().st_size


@dataclass(frozen=True)
class Drained:
    """Jobs a second between the first run and the last; how many should have run, and how many did."""

    rate: float
    jobs: int
    runs: int

    @property
    def verdict(self) -> str:
        """`exact`, or what was lost or doubled; lost is also what did not run in time."""
        if self.runs == self.jobs:
            return "exact"
        return f"{self.jobs - self.runs:,} LOST" if self.runs < self.jobs else f"{self.runs - self.jobs:,} DOUBLED"


def drain(contestant: Contestant, place: Path, url: str, jobs: int, slots: int) -> Drained:
    """Start a consumer over what is enqueued; stop it when all has run."""
    with consumer(contestant, place, url, slots) as running:
        if not running.wait_runs(jobs) and running.runs() == 0:
            raise PeerFailed(f"{contestant.name}: no job ran within {IDLE_SECONDS_MAX} s: {running.tail()}")
        last = (place / work.MARKS).stat().st_mtime_ns
        time.sleep(_SETTLE_SECONDS)
    first = int((place / work.FIRST).read_text())
    runs = marks(place)
    return Drained(min(runs, jobs) / (max(last - first, 1) / 1e9), jobs, runs)
