#!/usr/bin/env bash
# With Redis as broker, what a client sends to a Broadcast queue of Celery runs on no worker: it waits for ever in a list
# that nobody reads, one for each worker. It runs only if the client has declared the exchange before, on the very
# connection by which it sends.
#
# Seen: celery 5.7.0, kombu 5.7.0, redis-py 8.1.0, Redis 7.0.15, CPython 3.11.7, a worker with task_queues =
# (Queue("celery"), Broadcast("news")): `task.apply_async(queue="news")` leaves one message in the list bcast.UUID of the
# worker, and the task does not run. After `exchange.declare()` on the connection that apply_async is given, it runs, and
# no further message is left; declared on another connection of the same process, it is lost as well.
#
# Why: Celery declares no queue for a task whose queue is a Broadcast, so kombu's connection does not know that the
# exchange is of type fanout, and takes it for a direct one: it puts the message into the lists that are bound to it,
# while the worker of a fanout exchange listens to what is published alone.
#
# Fails if this changes. Exit 2: there is no redis-server here.
set -euo pipefail

command -v redis-server >/dev/null || { echo "no redis-server here"; exit 2; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check 'celery[redis]==5.7.0' kombu==5.7.0 redis==8.1.0
cat >"$folder/shop.py" <<'PROGRAM'
import os

from celery import Celery
from kombu import Exchange, Queue
from kombu.common import Broadcast

app = Celery("shop", broker=os.environ["BROKER"])
news = Exchange("news", type="fanout")
app.conf.task_queues = (Queue("celery"), Broadcast("news", exchange=news))


@app.task(ignore_result=True)
def note(text):
    with open(os.environ["NOTES"], "a") as file:
        file.write(text + "\n")
PROGRAM
cat >"$folder/send.py" <<'PROGRAM'
import sys

from shop import app, news, note

with app.connection_for_write() as connection:
    if sys.argv[1] == "declared":
        news(connection.default_channel).declare()
    note.apply_async((sys.argv[1],), queue="news", connection=connection)
note.apply_async(("end of " + sys.argv[1],), queue="celery")
PROGRAM
cat >"$folder/seen.py" <<'PROGRAM'
import contextlib
import os
import pathlib
import subprocess
import sys
import time

import redis

folder = pathlib.Path(sys.argv[1])
socket, notes = folder / "socket", folder / "notes"
os.environ |= {"BROKER": f"redis+socket://{socket}", "NOTES": str(notes), "PYTHONPATH": str(folder)}
options = ["--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", str(folder)]


def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.1)


def answers():
    with contextlib.suppress(redis.ConnectionError):
        return client.ping()


def lines():
    return notes.read_text().splitlines() if notes.exists() else []


def left():
    return [client.llen(key) for key in client.scan_iter("bcast.*") if client.type(key) == b"list"]


with contextlib.ExitStack() as ends:
    server = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL)
    ends.callback(server.terminate)
    client = redis.Redis(unix_socket_path=str(socket))
    until(answers)
    command = [sys.executable, "-m", "celery", "-A", "shop", "worker", "--pool", "solo", "--loglevel", "ERROR"]
    worker = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    ends.callback(worker.terminate)
    until(lambda: client.exists("_kombu.binding.news"))
    found = {}
    for how in ("fresh", "declared"):
        subprocess.run([sys.executable, str(folder / "send.py"), how], check=True)
        until(lambda: f"end of {how}" in lines())
        time.sleep(2)  # a broadcast comes by another way, and may come later
        found[how] = how in lines(), left()
print("whether it ran, and the messages in the lists of Broadcast queues:", found)
assert found == {"fresh": (False, [1]), "declared": (True, [1])}, "changed"
PROGRAM
"$folder/env/bin/python" "$folder/seen.py" "$folder"
