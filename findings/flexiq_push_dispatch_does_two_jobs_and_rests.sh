#!/usr/bin/env bash
# A worker of flexiq with push_dispatch=True, which is there to begin jobs sooner, does two jobs for each of its
# threads and then rests for 2 s, however many wait in the queue.
#
# Seen: flexiq 2.1.0, CPython 3.11.7, SQLite, workers=1: 12 jobs that do nothing and are all in the queue when the
# worker starts are begun in pairs, and the last pair 10 s after the first. Without push_dispatch it is less than a
# second. With 2 and 16 threads there are 4 and 32 jobs each 2 s.
#
# Why: the scheduler hands out as many jobs as threads and their waiting places can take. Then the default polls again
# soon, but one with push_dispatch sleeps until somebody enqueues, or for 2 s; the end of a job does not wake it. So
# a queue that is full stays full, unless its jobs take a second or more.
#
# Fails if this changes.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check flexiq==2.1.0
cat >"$folder/jobs.py" <<'PROGRAM'
import os
import time

import flexiq

options = {"push_dispatch": True} if os.environ["KIND"] == "push_dispatch" else {}
queue = flexiq.Queue(db_path=os.environ["DATABASE"], workers=1, **options)


@queue.task(name="job")
def job(number):
    print(f"begun {time.monotonic()}", flush=True)
PROGRAM
cat >"$folder/works.py" <<'PROGRAM'
import contextlib
import os
import pathlib
import signal
import subprocess
import sys

JOBS = 12
folder = pathlib.Path(sys.argv[1])
ENQUEUE = f"import jobs; jobs.queue.enqueue_many('job', [(number,) for number in range({JOBS})])"


def moments(kind):
    """Seconds after the first job, for each."""
    environment = os.environ | {"KIND": kind, "DATABASE": str(folder / kind), "PYTHONPATH": str(folder)}
    subprocess.run([sys.executable, "-c", ENQUEUE], env=environment, check=True)
    worker = [sys.executable, "-m", "flexiq.cli", "worker", "--app", "jobs:queue", "--pool", "thread"]
    begun = []
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(worker, env=environment, start_new_session=True, **output) as process:
        try:
            for line in process.stdout:
                if line.startswith("begun "):
                    begun.append(float(line.split()[1]))
                if len(begun) == JOBS:
                    break
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return [round(moment - begun[0], 1) for moment in begun]


polled, pushed = moments("default"), moments("push_dispatch")
print("by default:   ", polled)
print("push_dispatch:", pushed)
assert polled[-1] < 5, "changed, or the machine is busy"
rests = [later - earlier for earlier, later in zip(pushed, pushed[1:]) if later - earlier > 1]
assert len(rests) >= 4 and all(rest < 3 for rest in rests) and 7 < pushed[-1] < 15, "changed"
PROGRAM
"$folder/env/bin/python" "$folder/works.py" "$folder"
