#!/usr/bin/env bash
# flexiq --pool prefork runs its children with the first `python` in PATH, not with the interpreter that runs it.
#
# Seen: flexiq 2.1.0, CPython 3.11.7: `…/env/bin/flexiq worker --pool prefork`, called by its path and with no active
# virtual environment, runs jobs in another environment that comes first in PATH, with that one's packages. If flexiq
# is not there, the worker says "no prefork children started, aborting", and stays there without running anything.
# --pool thread runs jobs in its own environment. So does prefork with FLEXIQ_PYTHON, or after `activate`.
#
# Why: the children are started by the part in Rust, by the name `python`. A service file, cron or a Makefile names
# env/bin/flexiq and activates nothing. Then a job may run with a library of another version than its enqueuer and the
# worker have, and nothing says so.
#
# Fails if this changes.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for name in own other empty; do python3 -m venv "$folder/$name"; done
for name in own other; do
    "$folder/$name/bin/python" -m pip install --quiet --disable-pip-version-check flexiq==2.1.0
done
cat >"$folder/jobs.py" <<'PROGRAM'
import os
import pathlib
import sys

import flexiq

queue = flexiq.Queue(db_path=os.environ["DATABASE"], workers=1)


@queue.task(name="job")
def job():
    return pathlib.Path(sys.prefix).name
PROGRAM
cat >"$folder/works.py" <<'PROGRAM'
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

folder = pathlib.Path(sys.argv[1])
ASK = "import jobs; print(jobs.queue.enqueue('job').result(timeout=30))"


@contextlib.contextmanager
def worker(name, pool, path, **settings):
    """A worker of the environment `own`, and what its jobs need."""
    environment = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "FLEXIQ_PYTHON")}
    environment |= settings | {"PATH": f"{folder / path / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(folder)}
    environment["DATABASE"] = str(folder / f"{name}.db")
    command = [str(folder / "own/bin/flexiq"), "worker", "--app", "jobs:queue", "--pool", pool]
    with (
        open(folder / f"{name}.log", "w") as log,
        subprocess.Popen(command, env=environment, start_new_session=True, stdout=log, stderr=log) as process,
    ):
        try:
            yield process, environment
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def runs_in(name, *arguments, **settings):
    """The environment in which a job runs."""
    with worker(name, *arguments, **settings) as (_, environment):
        ask = [sys.executable, "-c", ASK]
        return subprocess.run(ask, env=environment, check=True, capture_output=True, text=True).stdout.strip()


def stays_without_children():
    with worker("childless", "prefork", "empty") as (process, _):
        while "no prefork children started" not in (folder / "childless.log").read_text():
            if process.poll() is not None:
                return False
            time.sleep(0.1)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        return process.poll() is None


seen = {
    "thread": runs_in("thread", "thread", "other"),
    "prefork": runs_in("prefork", "prefork", "other"),
    "prefork, active": runs_in("active", "prefork", "own"),
    "prefork, FLEXIQ_PYTHON": runs_in("told", "prefork", "other", FLEXIQ_PYTHON=str(folder / "own/bin/python")),
}
print(seen)
expected = {"thread": "own", "prefork": "other", "prefork, active": "own", "prefork, FLEXIQ_PYTHON": "own"}
assert seen == expected, "changed"
stays = stays_without_children()
print("without children it", "stays" if stays else "ends")
assert stays, "changed"
PROGRAM
"$folder/own/bin/python" "$folder/works.py" "$folder"
