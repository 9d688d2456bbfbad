#!/usr/bin/env bash
# redis-py 8 adds a job twice, and says so only by its answer, if the server takes longer than 5 s; and a blpop that
# shall wait for 7 s waits for a minute and then raises.
#
# Seen: redis-py 8.1.0, Redis 7.0.15, CPython 3.11.7, `redis.Redis()` with no options: while a script of another
# client keeps the server busy for 7 s, one rpush gives 2, and the list has the job twice; busy for 3 s, once.
# blpop("empty", 7) raises TimeoutError after 55 s and more. With socket_timeout=None the job is added once, and blpop
# gives None after 7 s.
#
# Why: 8.0 has a socket timeout of 5 s by default, and a client repeats up to ten times what has timed out, writes,
# too. The server still reads the first rpush when it is free, though the client has closed that connection. blpop
# sets no longer timeout for itself: each try waits for 5 s, and the eleventh raises.
#
# Fails if this changes. Exit 2: there is no redis-server here.
set -euo pipefail

command -v redis-server >/dev/null || { echo "no redis-server here"; exit 2; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check redis==8.1.0
cat >"$folder/adds.py" <<'PROGRAM'
import contextlib
import pathlib
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import redis

BUSY = """
local function now() local time = redis.call('TIME') return time[1] * 1000000 + time[2] end
redis.call('SET', 'begun', 1)
local ends = now() + ARGV[1] * 1000000
while now() < ends do end
"""


@contextlib.contextmanager
def server(name):
    folder = pathlib.Path(sys.argv[1]) / name
    folder.mkdir()
    socket = folder / "socket"
    options = ["--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", str(folder)]
    # No answers of BUSY: a script is as good as any command that takes long.
    options += ["--busy-reply-threshold", "60000"]
    with subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL) as process:
        try:
            with redis.Redis(unix_socket_path=str(socket), socket_timeout=None) as other:
                while True:
                    with contextlib.suppress(redis.ConnectionError):
                        other.ping()
                        break
                    time.sleep(0.05)
                yield str(socket), other
        finally:
            process.terminate()


def add(name, seconds, **options):
    with server(name) as (socket, other), redis.Redis(unix_socket_path=socket, **options) as client:
        client.ping()
        neighbour = threading.Thread(target=other.eval, args=(BUSY, 0, seconds))
        neighbour.start()
        time.sleep(0.5)  # the server is busy now, and can't say so
        answer = client.rpush("jobs", "job")
        neighbour.join()
        return answer, other.llen("jobs")


def wait(name, **options):
    with server(name) as (socket, _), redis.Redis(unix_socket_path=socket, **options) as client:
        begin = time.monotonic()
        try:
            answer = client.blpop("empty", 7)
        except redis.TimeoutError as error:
            answer = type(error).__name__
        return answer, time.monotonic() - begin


with ThreadPoolExecutor() as threads:
    patient, impatient = threads.submit(wait, "patient", socket_timeout=None), threads.submit(wait, "impatient")
    added = {
        "busy for 3 s": add("short", 3),
        "busy for 7 s": add("long", 7),
        "busy for 7 s, no timeout": add("patient writer", 7, socket_timeout=None),
    }
    waited = {"default": impatient.result(), "no timeout": patient.result()}
print("rpush's answer and the length:", added)
print("blpop's answer and seconds:", waited)
assert added == {"busy for 3 s": (1, 1), "busy for 7 s": (2, 2), "busy for 7 s, no timeout": (1, 1)}, "changed"
assert waited["default"][0] == "TimeoutError" and waited["default"][1] > 50, "changed"
assert waited["no timeout"][0] is None and 6.5 < waited["no timeout"][1] < 20, "changed"
PROGRAM
"$folder/env/bin/python" "$folder/adds.py" "$folder"
