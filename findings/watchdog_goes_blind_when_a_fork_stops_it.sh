#!/usr/bin/env bash
# A fork that stops its copy of a watchdog Observer makes the parent's blind: it is alive, reports nothing any more, and
# takes a whole CPU.
#
# Seen: watchdog 7.1.0, CPython 3.11.7, Linux: a process that watches a folder forks, and the child calls
# `observer.stop(); observer.join()`, as in a `finally` around the work. After that the parent's observer has all its
# threads and no watch in the kernel; an observer made later sees a new file, and this one does not. Without a fork or a
# stop the parent takes no CPU time.
#
# Why: a fork has the same inotify instance, not a copy of it, and `stop` takes each watch out of it. It also writes
# into a pipe to wake the thread that reads. The fork has no such thread, but the parent has, at the same pipe: its poll
# now comes back at once each time, and as nobody has stopped this copy, it polls again without reading the pipe.
#
# Fails if this changes.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check watchdog==7.1.0
cat >"$folder/watches.py" <<'PROGRAM'
import importlib.metadata
import os
import queue
import signal
import tempfile
import threading
import time

from watchdog.events import FileSystemEventHandler
from watchdog.observers import Observer


class Handler(FileSystemEventHandler):
    def __init__(self):
        self.created = queue.Queue()

    def on_created(self, event):
        self.created.put(os.path.basename(event.src_path))


def watch(folder):
    handler, observer = Handler(), Observer()
    observer.schedule(handler, folder)
    observer.start()
    return handler, observer


def count_watches():
    count = 0
    for number in os.listdir("/proc/self/fd"):
        try:
            if "inotify" in os.readlink(f"/proc/self/fd/{number}"):
                with open(f"/proc/self/fdinfo/{number}") as lines:
                    count += sum(line.startswith("inotify wd:") for line in lines)
        except FileNotFoundError:  # was open for the listing only
            pass
    return count


def create(folder, name):
    open(os.path.join(folder, name), "w").close()


def wait_until_it_reads():
    reader = next(thread for thread in threading.enumerate() if type(thread).__name__ == "InotifyFD")
    while not reader._is_reading:
        time.sleep(0.01)
    with reader._lock:  # so that no fork inherits it locked
        pass


def takes_a_second_of_cpu(within_s):
    began, until = time.process_time(), time.monotonic() + within_s
    while time.process_time() < began + 1 and time.monotonic() < until:
        time.sleep(0.05)
    return time.process_time() >= began + 1


with tempfile.TemporaryDirectory() as folder:
    handler, observer = watch(folder)
    wait_until_it_reads()
    before = count_watches()
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        observer.stop()
        observer.join()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    after, alive = count_watches(), observer.is_alive() and all(emitter.is_alive() for emitter in observer.emitters)
    busy = takes_a_second_of_cpu(within_s=60)
    later_handler, later_observer = watch(folder)
    create(folder, "file")
    seen_by_the_later = later_handler.created.get(timeout=60)
    seen = list(handler.created.queue)
    print(f"watchdog {importlib.metadata.version('watchdog')}: {before} watch before, {after} after", end="; ")
    print(f"alive: {alive}, busy: {busy}; it has seen {seen}, one made later {seen_by_the_later!r}")
    assert (before, after, alive, busy, seen, seen_by_the_later) == (1, 0, True, True, [], "file")
    later_observer.stop()
    observer.stop()
PROGRAM
"$folder/env/bin/python" "$folder/watches.py"
