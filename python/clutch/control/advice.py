"""What would make a pool faster, decided from figures of a running one: pure, and silent where it is not plain.

`advise` takes the figures of one pool over a few seconds (`Facts`; looking.py makes them of two looks at a server) and
returns one sentence with the flags as the user types them, or the reason why there is nothing to advise. The words for
work that waits and computes are those of `clutch tune`, which measures instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

FULL = 0.9
"""Share of the slots from which on they count as full."""
QUEUED = 0.5
"""Work that waits, on average, from which on somebody waits."""
WAITS = 0.6
"""Share of its run time that work must wait for more slots to be of use."""
BUSY_CPU, MORE_THAN_ONE = 0.8, 1.25
"""CPUs that a worker wants whose one thread, loop or GIL is the limit: about one, and no more."""
TURNS = 0.5
"""CPUs that each thread wants, beside one that all of them have together, if they take turns: one that waits for the
GIL wakes up to ask for it again and again."""
IDLE_CPUS = 0.4
"""CPUs that must be idle for more workers to be of use."""
SLOWER = 1.5
"""How many times longer than alone work takes whose threads compete."""
RUNS = 5
"""Runs by which a time is known."""
THREADS_MAX, TASKS_MAX = 64, 1024


@dataclass(frozen=True)
class Pace:
    """A function or route: runs alone in their worker and beside `others` at a time, and the middle of their times."""

    what: str
    alone: int
    alone_s: float | None
    beside: int
    beside_s: float | None
    others: float | None


@dataclass(frozen=True)
class Facts:
    """Figures of a pool. CPUs are a mean over the time that was looked at: 0.5 is half a CPU for all of it."""

    pool: str
    command: str
    """Who runs it: `serve`, `run`, `work` or `program`. Decides how options are spelled."""
    profile: str
    workers: int
    """Those that are ready."""
    threads: int
    tasks: int
    cpus: int
    """CPUs that the server may use."""
    seconds: float
    busy: float
    """Share of the slots that ran work, from 0 to 1."""
    taken: float
    """Work that workers had, running or sent ahead, per slot."""
    queued: float
    """Work that waited for a slot."""
    cpu: float
    """CPUs that the workers used."""
    cpu_wait: float
    """CPUs that they could have used beside those, but did not get."""
    idle: float | None
    """CPUs of the machine that nobody used."""
    done: float
    """Answers a second."""
    gil: bool = True
    runs_async: str | None = None
    """`async def` code that ran, by name."""
    blocked: tuple[str, float] | None = None
    """Work in an event loop that let nothing beside it begin, and how much waited behind it in its worker."""
    paces: tuple[Pace, ...] = ()
    worker_bytes: int | None = None
    free_bytes: int | None = None
    """Memory of the largest worker, and what the machine has left."""
    state: str = "ready"
    gave_up: float = 0.0
    """Work a second that was cancelled, or past its deadline, while it waited for a slot."""

    @property
    def slots(self) -> int:
        return self.workers * self.threads * self.tasks

    @property
    def run(self) -> float:
        """Slots that ran work."""
        return self.busy * self.slots

    @property
    def sent(self) -> float:
        """Work that workers had in their slots."""
        return min(1.0, self.taken) * self.slots

    @property
    def wanted_each(self) -> float:
        """CPUs that a worker wanted."""
        return (self.cpu + self.cpu_wait) / max(1, self.workers)

    @property
    def waits(self) -> float:
        """Share of its run time in which work neither computed nor wanted to."""
        return min(1.0, max(0.0, 1 - (self.cpu + self.cpu_wait) / self.run)) if self.run > 0 else 0.0

    @property
    def is_full(self) -> bool:
        return self.taken >= FULL and self.somebody_waits

    @property
    def somebody_waits(self) -> bool:
        """Whoever gives up has waited, if between the looks."""
        return self.queued >= QUEUED or self.gave_up > 0

    def line(self) -> str:
        """The figures, for people."""
        shape = f"{self.workers} {self.profile} worker{'s' * (self.workers != 1)}"
        shape += f" × {self.threads} threads" * (self.threads > 1) + f" × {self.tasks} tasks" * (self.tasks > 1)
        waiting = f"{self.queued:.0f} wait" if self.queued >= QUEUED else "nobody waits" * (not self.gave_up)
        given_up = f"{self.gave_up:.2g} a second give up" if self.gave_up else ""
        waiting = ", ".join(filter(None, (waiting, given_up)))
        used = f"CPU {self.cpu:.0%} of {self.cpus}".replace("%", " %")
        return f"pool {self.pool}: {shape}, slots {percent(min(self.taken, 1))} busy, {waiting}, {used}"


@dataclass(frozen=True)
class Advice:
    """One sentence. `options`: the options to set, by their names in the configuration; none: nothing to advise."""

    kind: str
    sentence: str
    options: tuple[tuple[str, str | int], ...] = ()

    @property
    def is_plain(self) -> bool:
        return self.kind != "nothing"


def advise(facts: Facts) -> Advice:
    """The first that is plain, the most specific first."""
    if facts.workers == 0:
        return nothing(f"no worker is ready (the pool is {facts.state})")
    for rule in (of_async_on_process, of_the_gil, of_a_blocked_loop, of_one_cpu_each, of_waiting_slots):
        if (found := rule(facts)) is not None:
            return found
    return nothing(reason(facts))


# Rules


def of_async_on_process(facts: Facts) -> Advice | None:
    if facts.profile != "process" or facts.runs_async is None or not facts.is_full or facts.waits < WAITS:
        return None
    kind, name = ("app", "it") if facts.runs_async == "" else ("tool", facts.runs_async)
    said = f"an async {kind} on process: one stream at a time ({name} waits {percent(facts.waits)} of its time)"
    return made("async", said, facts, profile="async")


def of_the_gil(facts: Facts) -> Advice | None:
    """Threads that take turns: of them all, about one wants to run at any time."""
    if facts.profile != "thread" or facts.threads == 1 or not facts.gil or facts.workers >= facts.cpus:
        return None
    one_runs = facts.wanted_each >= BUSY_CPU and facts.cpu <= MORE_THAN_ONE * facts.workers
    beside = facts.sent - facts.workers
    if not one_runs or beside < facts.workers or facts.cpu + facts.cpu_wait > facts.workers + TURNS * beside:
        return None
    paces = [pace for pace in facts.paces if pace.beside >= RUNS and pace.beside_s and (pace.others or 0) >= 1]
    if not paces:
        return None
    pace = max(paces, key=lambda one: one.beside)
    assert pace.beside_s is not None
    if pace.alone >= RUNS and pace.alone_s:
        if pace.beside_s < SLOWER * pace.alone_s:
            return None
        told = f"takes {duration(pace.alone_s)} alone, {duration(pace.beside_s)} now"
    else:
        told = f"takes {duration(pace.beside_s)} beside {pace.others:.0f} others"
    workers = most_workers(facts, facts.cpus)
    if workers <= facts.workers:
        return None
    said = f"threads compete for the GIL: {pace.what} {told}"
    each = facts.cpu / facts.done if facts.done > 0 else math.inf
    if pace.alone_s and each < pace.alone_s / 2:
        # It waits, too: threads are of use to it.
        return made("gil", said, facts, workers=workers)
    return made("gil", said, facts, profile="process", threads=1, workers=workers)


def of_a_blocked_loop(facts: Facts) -> Advice | None:
    if facts.profile != "async" or facts.blocked is None or facts.wanted_each > 1 - WAITS:
        return None
    what, behind = facts.blocked
    said = (
        f"{what} blocks its event loop: it waits without await, and {behind:.0f} wait behind it; "
        "use await or asyncio.to_thread in it"
    )
    return Advice("blocked loop", said)


def of_one_cpu_each(facts: Facts) -> Advice | None:
    """Each worker is at its limit, one CPU, and CPUs are idle."""
    one_thread = facts.profile != "thread" or facts.threads == 1 or facts.gil
    if not one_thread or not BUSY_CPU <= facts.wanted_each <= MORE_THAN_ONE or facts.workers >= facts.cpus:
        return None
    waits = facts.queued >= QUEUED or (facts.tasks > 1 and facts.taken * facts.tasks * facts.threads >= 2)
    if not waits or (facts.idle is not None and facts.idle < IDLE_CPUS):
        return None
    workers = most_workers(facts, facts.cpus)
    if workers <= facts.workers:
        return None
    said = f"workers compute all the time, and {facts.cpus} CPUs may be used"
    return made("workers", said, facts, workers=workers)


def of_waiting_slots(facts: Facts) -> Advice | None:
    if not facts.is_full or facts.waits < WAITS:
        return None
    # Of those that gave up between the looks the number is not known: at least one waited.
    concurrency = facts.run + max(1.0, facts.queued)
    if facts.cpu > 0:
        # More slots than keep all CPUs busy are of no use.
        concurrency = min(concurrency, facts.cpus * facts.run / facts.cpu)
    each = math.ceil(concurrency / facts.workers)
    has_tasks = facts.profile in ("async", "greenlet")
    now = facts.tasks if has_tasks else facts.threads
    wanted = min(TASKS_MAX if has_tasks else THREADS_MAX, 1 << max(1, math.ceil(math.log2(max(2, each)))))
    if facts.gil or has_tasks:
        # One CPU is all that the threads of a worker have together.
        wanted = min(wanted, math.floor(now * BUSY_CPU / max(facts.wanted_each, 1e-3)))
    if wanted <= now:
        return None
    option = "tasks" if has_tasks else "threads"
    # To more than one thread, `process` becomes `thread`, as the profile of a configuration does not by itself.
    changed = {"profile": "thread"} if facts.profile == "process" and facts.command != "serve" else {}
    return made("slots", "slots full, CPU idle", facts, **changed, **{option: wanted})


def most_workers(facts: Facts, wanted: int) -> int:
    """As many as are wanted, and as memory is there for."""
    if not facts.worker_bytes or facts.free_bytes is None:
        return wanted
    return min(wanted, facts.workers + int(0.8 * facts.free_bytes / facts.worker_bytes))


def reason(facts: Facts) -> str:
    """Why there is nothing to advise."""
    used = f"CPU {percent(facts.cpu)} of {facts.cpus}"
    if not facts.somebody_waits:
        return f"slots are {percent(min(1.0, facts.taken))} busy and nobody waits for one, {used}"
    if facts.cpu + facts.cpu_wait >= FULL * facts.cpus:
        return f"all CPUs that may be used are: {used}"
    if facts.wanted_each >= BUSY_CPU and facts.idle is not None and facts.idle < IDLE_CPUS:
        return f"workers compute all the time, {facts.queued:.0f} wait, and no CPU of the machine is idle, {used}"
    return f"slots are {percent(min(1.0, facts.taken))} busy, {facts.queued:.0f} wait, {used}: nothing is plain"


def nothing(why: str) -> Advice:
    return Advice("nothing", f"nothing to advise: {why}")


# Words


def made(kind: str, said: str, facts: Facts, **options: str | int) -> Advice:
    return Advice(kind, f"{said}: try {spelled(facts, options)}", tuple(options.items()))


SERVE = {"workers": "-w", "threads": "--threads", "tasks": "--worker-connections", "profile": "-k"}


def spelled(facts: Facts, options: dict[str, str | int]) -> str:
    """The options as they are typed where the pool comes from."""
    if facts.command == "serve":
        return " ".join(f"{SERVE[name]} {value}" for name, value in options.items())
    if facts.command == "work":
        return " ".join(f"--{name} {value}" for name, value in options.items())
    if facts.command == "program":
        return ", ".join(f"{name}={value!r}" for name, value in options.items())
    return " ".join(f"--set pools.{facts.pool}.{name}={value}" for name, value in options.items())


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def duration(seconds: float) -> str:
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
