"""Options of `celery worker`, typed at `clutch work`: what stands for each, and a whole line of them in one.

N, RANGE, TIME, LEVEL and TEXT stand for values, as in `habits`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from clutch.cli.habits import LEFT_OUT, Habit, filled, name_of

BEFOREHAND = "nothing is claimed that cannot begin"
BEAT = (
    "run `celery beat` beside; Clutch's own need no process: every `clutch work` runs the schedules of its store "
    "(docs/jobs/periodic.md)"
)
SYSTEMD = "run it under systemd (docs/operating.md)"
WITHOUT = "it costs nothing: a process beside does it"

POOLS = {
    "prefork": ["--workers N"],
    "processes": ["--workers N"],
    "custom": ["--workers N"],
    "solo": ["--workers 1"],
    "threads": ["--profile thread", "--workers 1", "--threads N"],
    "gevent": ["--profile greenlet", "--workers 1", "--tasks N"],
    "eventlet": ["--profile greenlet", "--workers 1", "--tasks N"],
}
"""By Celery's pool: what stands for it and its concurrency."""


@dataclass(frozen=True, slots=True)
class Flag:
    """An option of Celery. `here`: what to write; `before`: a variable before the command; `why` it is left out."""

    names: tuple[str, ...]
    here: str = ""
    before: str = ""
    why: str = ""
    has_value: bool = True


FLAGS = (
    Flag(("-A", "--app")),
    Flag(("-c", "--concurrency")),
    Flag(("-P", "--pool")),
    Flag(("-b", "--broker"), before="CELERY_BROKER_URL=TEXT"),
    Flag(("--result-backend",), before="CELERY_RESULT_BACKEND=TEXT"),
    Flag(("--config",), before="CELERY_CONFIG_MODULE=TEXT"),
    Flag(("--loader",), before="CELERY_LOADER=TEXT"),
    Flag(("--workdir",), before="cd TEXT &&"),
    Flag(("--executable",), "--python TEXT"),
    Flag(("-n", "--hostname"), "--node TEXT"),
    Flag(("-Q", "--queues"), "--queues TEXT"),
    Flag(("-l", "--loglevel"), "--log-level LEVEL"),
    Flag(("-q", "--quiet"), "--log-level warning", has_value=False),
    Flag(("--autoscale",), "--workers RANGE"),
    Flag(("--max-tasks-per-child", "--maxtasksperchild"), "--recycle-calls N"),
    Flag(("--max-memory-per-child",), "--recycle-memory NKB"),
    Flag(("--pool-start-method",), "--start TEXT"),
    Flag(("--time-limit",), "--deadline TIME"),
    Flag(("--soft-time-limit",), why="set task_soft_time_limit = N in the app"),
    Flag(
        ("-E", "--task-events", "--events"),
        why="set worker_send_task_events = True in the app, or run `celery control enable_events`",
        has_value=False,
    ),
    Flag(("-B", "--beat"), why=BEAT, has_value=False),
    Flag(("-s", "--schedule", "--schedule-filename"), why=BEAT),
    Flag(("--scheduler",), why=BEAT),
    Flag(("-X", "--exclude-queues"), why="name the queues to take from: --queues mail,default"),
    Flag(("-I", "--include"), why="set include = ['TEXT'] in the app, or name the modules as TARGETs"),
    Flag(
        ("--purge", "--discard"),
        why="run `celery purge` before; in a store of Clutch `clutch jobs delete --state available`",
        has_value=False,
    ),
    Flag(("-f", "--logfile"), why="the log is on standard error: write 2>> TEXT"),
    Flag(("-D", "--detach"), why=SYSTEMD, has_value=False),
    Flag(("--uid",), why=SYSTEMD),
    Flag(("--gid",), why=SYSTEMD),
    Flag(("--umask",), why=SYSTEMD),
    Flag(("--pidfile",), why="`clutch stop` and `clutch ps` find it by its folder"),
    Flag(("-S", "--statedb"), why="what was revoked is kept at the broker"),
    Flag(("--prefetch-multiplier",), why=BEFOREHAND),
    Flag(("--disable-prefetch",), why=BEFOREHAND, has_value=False),
    Flag(("-O", "--optimization"), why=BEFOREHAND),
    Flag(("--without-gossip",), why=WITHOUT, has_value=False),
    Flag(("--without-mingle",), why=WITHOUT, has_value=False),
    Flag(("--without-heartbeat",), why=WITHOUT, has_value=False),
    Flag(("--heartbeat-interval",), why="it is 2 seconds"),
    Flag(("-C", "--no-color"), why="the log has no colours", has_value=False),
    Flag(("--skip-checks",), why="Django checks itself in its own commands", has_value=False),
)
BY_NAME = {name: flag for flag in FLAGS for name in flag.names}


def rows() -> Iterator[Habit]:
    """Those that mean the same by themselves."""
    for flag in FLAGS:
        instead = f"write {flag.here}" if flag.here else f"{LEFT_OUT}: {flag.why}"
        if flag.before:
            instead = f"write {flag.before} before the command"
        if flag.before or flag.here or flag.why:
            yield Habit(flag.names, "Celery", instead)


def whole_line(arguments: Sequence[str]) -> str | None:
    """The line to write in place of these arguments. None: they do not name an app of Celery, or are not all its."""
    found = read(arguments)
    if found is None or "-A" not in found or (len(found) < 2 and "worker" not in arguments):
        return None
    values = {name: value for name, value in found.items() if name not in ("-A", "-c", "-P")}
    before, here, left_out = [], [], []
    for name, value in values.items():
        flag = BY_NAME[name]
        if flag.before:
            before.append(put(flag.before, value))
        elif flag.here:
            here.append(put(flag.here, value))
        else:
            left_out.append(f"{name}: {put(flag.why, value)}")
    line = [*before, "clutch work", shlex.quote(found["-A"] or "proj"), *slots(found, "--autoscale" in found), *here]
    return "\n".join([f"in place of celery worker, write: {' '.join(line)}", *(f"  without {one}" for one in left_out)])


def read(arguments: Sequence[str]) -> dict[str, str | None] | None:
    """Options by their first names, with their values. None: one is not Celery's."""
    found: dict[str, str | None] = {}
    left = list(arguments)
    while left:
        argument = left.pop(0)
        name = name_of(argument)
        if name is None:
            if argument not in ("celery", "worker"):
                return None
            continue
        flag = BY_NAME.get(name)
        if flag is None:
            return None
        value = argument[len(name) :].removeprefix("=") or None
        found[flag.names[0]] = value or (left.pop(0) if flag.has_value and left else None)
    return found


def slots(found: dict[str, str | None], scales: bool) -> list[str]:
    pool = POOLS.get(found.get("-P") or "prefork", POOLS["prefork"])
    count = found.get("-c")
    given = [part for part in pool if count is not None or " N" not in part]
    return [put(part, count) for part in given if not (scales and part.startswith("--workers"))]


def put(text: str, value: str | None) -> str:
    return text if value is None else filled(text, shlex.quote(value))
