"""A workflow under kill −9: many jobs before one, and one behind that, while dispatchers and workers are killed.

    python -m benches.jobs.workflow --store sqlite:////tmp/flow/jobs.db --jobs 10000 --kills 20

Prints how often each job ran, and whether the one behind them was released exactly once, after all of them. A job may
run twice: its process was killed between its end and the write of that end.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path

import clutch
from clutch import tool
from clutch.jobs import Job
from clutch.testing import children

DISPATCHERS = 2
LEASE_SECONDS = 2
SECONDS_MAX = 500


def append(path: str, text: str) -> None:
    """One write, so that runs are counted whatever happens."""
    with open(path, "ab", buffering=0) as file:
        file.write(text.encode())


@tool(result="1h")
def part(path: str, number: int) -> int:
    append(path, f"{number}\n")
    return number


@tool(result="1h")
def gather(path: str) -> int:
    job = clutch.current_job()
    assert job is not None
    append(path, "gather\n")
    return sum(job.results)


@tool
def tell(path: str) -> None:
    job = clutch.current_job()
    assert job is not None
    append(path, f"tell {job.results[0]}\n")


def start(store: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "clutch", "work", "benches.jobs.workflow", "--store", store, "--workers", "2"]
    command += ["--lease", f"{LEASE_SECONDS}s"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)


def kill_one(dispatcher: subprocess.Popen[bytes], dice: random.Random) -> None:
    """The dispatcher, one of its workers, or all of them at once."""
    with contextlib.suppress(ProcessLookupError):
        match dice.randrange(3):
            case 0:
                dispatcher.kill()
            case 1:
                os.kill(dice.choice([*children(dispatcher.pid), dispatcher.pid]), signal.SIGKILL)
            case _:
                os.killpg(dispatcher.pid, signal.SIGKILL)


def play(store: str, count: int, kills: int, seed: int) -> list[str]:
    """Returns what is wrong."""
    dice, jobs = random.Random(seed), clutch.Jobs(store)
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder) / "runs"
        runs.touch()
        began = time.monotonic()
        many = jobs.enqueue_many(part, [(str(runs), nr) for nr in range(count)], then=partial(gather, str(runs)))
        assert many.then is not None
        last = jobs.enqueue(tell, str(runs), after=many.then)
        print(f"enqueued {count} jobs, one behind them and one behind that in {time.monotonic() - began:.2f} s")
        dispatchers = [start(store) for _ in range(DISPATCHERS)]
        killed, done = 0, 0
        try:
            while time.monotonic() - began < SECONDS_MAX:
                found = jobs.get(last)
                assert found is not None
                if found.state == "completed":
                    break
                seen = len(set(runs.read_text().split("\n")))
                # Spread over the whole, the last of them near its end.
                if killed < kills and seen >= done:
                    nr = dice.randrange(DISPATCHERS)
                    kill_one(dispatchers[nr], dice)
                    killed, done = killed + 1, seen + max(1, (count - seen) // max(1, kills - killed))
                for nr, dispatcher in enumerate(dispatchers):
                    if dispatcher.poll() is not None:
                        dispatchers[nr] = start(store)
                time.sleep(0.05)
        finally:
            for dispatcher in dispatchers:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(dispatcher.pid, signal.SIGKILL)
                dispatcher.wait()
        print(f"ended after {time.monotonic() - began:.1f} s and {killed} kills")
        return report(runs.read_text().split("\n")[:-1], count, [jobs.get(job) for job in (many.then, last)])


def report(lines: list[str], count: int, ends: list[Job | None]) -> list[str]:
    parts = Counter(line for line in lines if line.isdigit())
    print(f"jobs by number of runs: {dict(sorted(Counter(parts.values()).items()))}")
    wrong = [] if len(parts) == count else [f"{count - len(parts)} jobs never ran"]
    for job, line in zip(ends, ("gather", f"tell {sum(range(count))}"), strict=True):
        if job is None or job.state != "completed":
            wrong.append(f"{line}: {job and job.state}")
            continue
        ran = lines.count(line)
        print(f"{job.tool} is {job.state}, ran {ran} times, {len(job.errors)} leases lapsed under it")
        if not 1 <= ran <= 1 + len(job.errors):
            wrong.append(f"{line} ran {ran} times: it was released more than once")
    first = lines.index("gather") if "gather" in lines else len(lines)
    if set(map(str, range(count))) - set(lines[:first]):
        wrong.append("it was released before all had run")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", required=True)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    wrong = play(given.store, given.jobs, given.kills, given.seed)
    print("\n".join(wrong) or "released exactly once")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
