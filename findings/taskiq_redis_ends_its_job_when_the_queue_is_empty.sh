#!/usr/bin/env bash
# A worker of taskiq with a list of Redis breaks off the job that it runs, for good, if no other has come for 5 s.
#
# Seen: taskiq 0.13.0, taskiq-redis 1.2.4, redis-py 8.1.0, Redis 7.0.15, CPython 3.11.7, one worker,
# ListQueueBroker(url) with no options: one job of 9 s begins, and after 5 s the worker says "Waiting for 1 running
# tasks to complete...", and is dead before the job is done. Its successor finds an empty list. A worker that does
# nothing ends every 5 s, too. With ListQueueBroker(url, socket_timeout=None) the job is done.
#
# Why: taskiq-redis 1.2.4 asks for redis-py 8, which gives up a read after 5 s by default. The brpop that waits for
# the next job has no end of its own, so it raises redis.TimeoutError, which `listen` does not catch: it catches
# Python's ConnectionError, and this is none. What raises there ends the worker and its event loop, with the job in
# it. brpop takes a job off the list before it begins, so nobody has it any more.
#
# Fails if this changes. Exit 2: there is no redis-server here.
set -euo pipefail

command -v redis-server >/dev/null || { echo "no redis-server here"; exit 2; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check \
    taskiq==0.13.0 taskiq-redis==1.2.4 redis==8.1.0
cat >"$folder/jobs.py" <<'PROGRAM'
import asyncio
import os

from taskiq_redis import ListQueueBroker

options = {"socket_timeout": None} if os.environ["WAITS"] == "patiently" else {}
broker = ListQueueBroker(os.environ["URL"], **options)


@broker.task(task_name="job")
async def job():
    print("job: begun", flush=True)
    await asyncio.sleep(9)
    print("job: done", flush=True)


async def enqueue():
    await broker.startup()
    await job.kiq()
    await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(enqueue())
PROGRAM
cat >"$folder/works.py" <<'PROGRAM'
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

import redis

TOLD = ("job: begun", "Waiting for 1 running tasks", "is dead", "job: done")
folder = pathlib.Path(sys.argv[1])


@contextlib.contextmanager
def running(command, **options):
    with subprocess.Popen(command, start_new_session=True, **options) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def lines_of_a_worker(waits):
    home = folder / waits
    home.mkdir()
    socket = str(home / "socket")
    environment = os.environ | {"URL": f"unix://{socket}", "WAITS": waits, "PYTHONPATH": str(folder)}
    options = ["--port", "0", "--unixsocket", socket, "--save", "", "--dir", str(home)]
    worker = [sys.executable, "-m", "taskiq", "worker", "jobs:broker", "--workers", "1"]
    told = []
    with running(["redis-server", *options], stdout=subprocess.DEVNULL):
        client = redis.Redis(unix_socket_path=socket)
        while True:
            with contextlib.suppress(redis.ConnectionError):
                client.ping()
                break
            time.sleep(0.05)
        subprocess.run([sys.executable, str(folder / "jobs.py")], env=environment, check=True)
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        with running(worker, env=environment, **output) as process:
            for line in process.stdout:
                told += [what for what in TOLD if what in line]
                if told[-1:] in (["is dead"], ["job: done"]):
                    break
        return told, client.llen("taskiq")


with_defaults, patient = lines_of_a_worker("by default"), lines_of_a_worker("patiently")
print("by default, and jobs left:", with_defaults)
print("socket_timeout=None, and jobs left:", patient)
assert with_defaults == (["job: begun", "Waiting for 1 running tasks", "is dead"], 0), "changed"
assert patient == (["job: begun", "job: done"], 0), "changed"
PROGRAM
"$folder/env/bin/python" "$folder/works.py" "$folder"
