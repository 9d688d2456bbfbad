"""Programs that a case is run with. Each writes what it has seen, as JSON, to the file that it is given first."""

from __future__ import annotations

TARGET = """\
import clutch
{top}


@clutch.tool
def use(n):
{use}
"""

ALONE = """\
import json, os, sys
before = set(os.listdir("/proc/self/task"))
import target
threads = len(set(os.listdir("/proc/self/task")) - before)
links = []
for name in os.listdir("/proc/self/fd"):
    try:
        links.append(os.readlink(f"/proc/self/fd/{name}"))
    except OSError:
        pass
alone = [repr(target.use(n)) for n in range(6)]
with open(sys.argv[1], "w") as file:
    sockets = sum(link.startswith("socket:") for link in links)
    json.dump({"threads": threads, "sockets": sockets, "alone": alone}, file)
os._exit(0)
"""
"""Without a pool: what the import leaves, and right answers."""

FORKED = """\
import json, os, signal, sys, time
import target

SECONDS_MAX = 8


def use(numbers, path):
    seen = []
    for n in numbers:
        try:
            seen.append([repr(target.use(n)), None])
        except BaseException as error:
            seen.append([None, f"{type(error).__name__}: {' '.join(str(error).split())}"])
    with open(path, "w") as file:
        json.dump(seen, file)


def ended(pid, until):
    while time.monotonic() < until:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return True
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return False


def seen_by(number, pid, until):
    path, numbers = f"{sys.argv[1]}-{number}", range(number, 6, 2)
    if not ended(pid, until):
        return [[None, "hangs"] for _ in numbers]
    if not os.path.exists(path):
        return [[None, "dies"] for _ in numbers]
    with open(path) as file:
        return json.load(file)


children = []
both = time.monotonic() + 0.1
for number in range(2):
    pid = os.fork()
    if pid == 0:
        try:
            time.sleep(max(0, both - time.monotonic()))
            use(range(number, 6, 2), f"{sys.argv[1]}-{number}")
        finally:
            os._exit(0)
    children.append(pid)
until = time.monotonic() + SECONDS_MAX
halves = [seen_by(number, pid, until) for number, pid in enumerate(children)]
with open(sys.argv[1], "w") as file:
    json.dump({"seen": [one for pair in zip(*halves) for one in pair], "restarts": 0, "missing": 0}, file)
os._exit(0)
"""
"""Without a pool, in two children at once that the program has forked after the import."""

POOLED = """\
import json, os, sys, time
from clutch import Pool

path, profile, calls = sys.argv[1], sys.argv[2], 6


def described(future):
    try:
        return repr(future.result(120)), None
    except BaseException as error:
        return None, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def wait_for(pool, ready, seconds_max):
    until = time.monotonic() + seconds_max
    while pool.stats()["ready"] < ready and time.monotonic() < until:
        time.sleep(0.02)


if __name__ == "__main__":
    workers = 2 if profile == "process" else 1
    with Pool("target", profile=profile, workers=workers) as pool:
        wait_for(pool, 1, 100)
        wait_for(pool, workers, 20)  # so that each has work
        missing = workers - pool.stats()["ready"]
        made = [pool.options(deadline=100).submit("use", n) for n in range(calls)]
        seen = [described(one) for one in made]
        with open(path, "w") as file:
            json.dump({"seen": seen, "restarts": pool.stats()["restarts"], "missing": missing}, file)
"""
