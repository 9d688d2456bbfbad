"""`clutch top`: a terminal page of what runs, kept up to date. A client of the operator plane like any other.

What is shown is a function of two looks at the pools and the time between them; the loop only asks, draws and reads
keys.
"""

from __future__ import annotations

import collections
import contextlib
import importlib
import itertools
import json
import os
import select
import sys
import termios
import threading
import time
import tty
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clutch.cli.flags import as_json
from clutch.cli.remote import dispatcher_flags, find, jobs_text, memory
from clutch.cli.table import age, printable
from clutch.config.values import CALL_TIME
from clutch.control import client
from clutch.control.advice import advise
from clutch.control.client import ControlError, NoAnswer
from clutch.control.looking import Look, facts_of, look

if TYPE_CHECKING:
    from rich.console import RenderableType

EVENTS_SHOWN = 8
RUNNING_SHOWN = 3
"""Maximum calls shown of one worker; more are counted."""
STOP_KEYS = ("q", "Q", "\x1b")
SCROLL_KEYS = {"\x1b[B": 1, "j": 1, "\x1b[A": -1, "k": -1}
"""By how many pools. Arrows, or as in vi."""

Page = dict[str, Any]


def with_rates(before: Look, now: Look) -> Page:
    """The page with `done_per_s` and `failed_per_s` of each pool, `run_s_per_s` (slots that ran), `cpu_s_per_s` (CPUs
    that they used) and `advice` where it is plain; and `calls_per_s` and `cpu` (of one core) of workers.

    None where there is nothing to compare with.
    """
    judged = {facts.pool: advise(facts) for facts in facts_of([before, now])}
    sentences = {pool: advice.sentence for pool, advice in judged.items() if advice.is_plain}
    seconds = now.at - before.at
    pools_before = {pool["name"]: pool for pool in before.page["pools"]}

    def per_second(name: str, of: Page, of_before: Page | None) -> float | None:
        if of_before is None or seconds <= 0 or of.get(name) is None or of_before.get(name) is None:
            return None
        return max(0.0, (of[name] - of_before[name]) / seconds)

    pools = []
    for pool in now.page["pools"]:
        old = pools_before.get(pool["name"])
        workers_before = {worker["pid"]: worker for worker in old["workers"]} if old else {}
        workers = []
        for worker in pool["workers"]:
            old_worker = workers_before.get(worker["pid"])
            calls, cpu = (per_second(name, worker, old_worker) for name in ("calls", "cpu_s"))
            workers.append({**worker, "calls_per_s": calls, "cpu": cpu})
        rates = {f"{name}_per_s": per_second(name, pool, old) for name in ("done", "failed", "run_s", "cpu_s")}
        pools.append({**pool, **rates, "advice": sentences.get(pool["name"]), "workers": workers})
    return {**now.page, "pools": pools}


@click.command("top", short_help="Show pools, workers and events live.")
@click.option("--interval", default="1s", show_default=True, metavar="DURATION", help="Time between two looks.")
@click.option("-n", "--count", type=click.IntRange(1), help="Stop after this many looks.")
@dispatcher_flags
@as_json
def command(interval: str, count: int | None, socket: Path | None, pid: int | None, as_json: bool) -> None:
    """Show the pools, workers and events of a running server or program, updated until q or Ctrl-C.

    Down and up, or j and k, move from pool to pool where not all fit.
    With --json, or where the output is no terminal, print one page for each look.
    """
    seconds = interval_seconds(interval)
    where = find(socket, pid, only_looks=True)
    before = look(where)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            if as_json or not sys.stdout.isatty():
                print_pages(where, before, seconds, count, as_json)
            else:
                draw_pages(where, before, seconds, count)
    except NoAnswer:
        click.echo(f"pid {before.page['pid']} has ended", err=True)


def interval_seconds(text: str) -> float:
    try:
        seconds: float = CALL_TIME.parse(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 3600:
        raise click.UsageError(f"--interval {text!r} is not a time from 100ms to 1h: write 2s or 500ms")
    return seconds


def looks(count: int | None) -> Iterator[int]:
    """Yields the numbers of the wanted looks."""
    return iter(itertools.count() if count is None else range(count))


def print_pages(socket: Path, before: Look, seconds: float, count: int | None, as_json: bool) -> None:
    from rich.console import Console

    console = Console()
    for _ in looks(count):
        time.sleep(seconds)
        now = look(socket)
        page = with_rates(before, now)
        if as_json:
            click.echo(json.dumps(page))
        else:
            console.print(pools_shown(page))
        before = now


def draw_pages(socket: Path, before: Look, seconds: float, count: int | None) -> None:
    from rich.live import Live

    events = Events(socket)
    first = 0
    with Live(drawn(with_rates(before, before), events), screen=True, auto_refresh=False) as live, keys() as key_within:
        for _ in looks(count):
            if (key := key_within(seconds)) in STOP_KEYS:
                break
            now = look(socket)
            page, before = with_rates(before, now), now
            first = max(0, min(first + SCROLL_KEYS.get(key, 0), len(page["pools"]) - 1))
            live.update(drawn(page, events, first), refresh=True)


@contextlib.contextmanager
def keys() -> Iterator[Any]:
    """A function that waits so many seconds for a key, and returns it or an empty text."""
    if not sys.stdin.isatty():
        yield lambda seconds: time.sleep(seconds) or ""
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def key_within(seconds: float) -> str:
        is_there = select.select([descriptor], [], [], seconds)[0]
        # Arrows and the like are several characters, which begin as Escape does.
        return os.read(descriptor, 64).decode(errors="replace") or STOP_KEYS[0] if is_there else ""

    try:
        tty.setcbreak(descriptor)
        yield key_within
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


class Events:
    """The last events, as lines of the log; a thread reads them."""

    def __init__(self, socket: Path) -> None:
        # Before the thread: this program may end while that imports, and the extension does not bear it.
        importlib.import_module("clutch._dispatcher.event_log")
        self.lines: collections.deque[str] = collections.deque(maxlen=EVENTS_SHOWN)
        threading.Thread(target=self._read, args=(socket,), name="clutch-top", daemon=True).start()

    def _read(self, socket: Path) -> None:
        with contextlib.suppress(ControlError):  # it has ended: the page says so
            for event in client.events(socket):
                self.lines.append(f"{time.strftime('%H:%M:%S')}  {event_text(event)}")


def event_text(event: Page) -> str:
    from clutch._dispatcher.event_log import LINES

    if event["event"] in LINES:
        return LINES[event["event"]](event)[1].partition("\n")[0]
    fields = " ".join(f"{name}={value}" for name, value in event.items() if name != "event")
    return f"{event['event']} {fields}"


# Values to words


def drawn(page: Page, events: Events, first: int = 0) -> RenderableType:
    """Returns the page, from the pool with number `first` on."""
    from rich.layout import Layout
    from rich.panel import Panel
    from rich.text import Text

    stopping = ", shutting down" if page["stopping"] else ""
    head = f"{page['config']} (pid {page['pid']}), for {age(page['age_s'])}{stopping}; q: quit"
    lines = tuple(events.lines)
    shown = [Layout(Panel(Text("\n".join(lines)), title="events"), size=len(lines) + 2)] if lines else []
    layout = Layout()
    layout.split_column(Layout(head, size=1), Layout(pools_shown({**page, "pools": page["pools"][first:]})), *shown)
    return layout


def pools_shown(page: Page) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    # Few lines, and the news that there is: they stay where not all workers fit.
    jobs = [Text(printable(jobs_text(front), kept="\n")) for front in page.get("jobs", ())]
    return Group(*jobs, *map(pool_shown, page["pools"]))


def pool_shown(pool: Page) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(pool_text(pool)), title_justify="left", box=None, expand=True, pad_edge=False)
    for name in ("worker", "pid", "state", "calls", "calls/s", "CPU", "memory", "age"):
        table.add_column(name, justify="left" if name in ("worker", "state") else "right", no_wrap=True)
    table.add_column("runs", ratio=1, no_wrap=True, overflow="ellipsis")
    for worker in pool["workers"]:
        table.add_row(*map(Text, worker_row(pool["name"], worker)))
    return table


def pool_text(pool: Page) -> str:
    failed = f" ({rate(pool['failed_per_s'])} failed)" if pool["failed_per_s"] else ""
    line = (
        f"{pool['name']}: {pool['state']}, {pool['ready']} of {pool['target']} workers; {pool['queued']} queued, "
        f"{pool['sent']} of {pool['slots']} slots; {rate(pool['done_per_s'])}/s{failed}, {pool['restarts']} restarts"
    )
    run, cpu = pool["run_s_per_s"], pool["cpu_s_per_s"]
    if run is not None and cpu is not None:
        line += f"; run {run:.1f}: CPU {cpu:.1f}, waiting {max(0.0, run - cpu):.1f}"
    advice = [printable(pool["advice"])] if pool["advice"] is not None else []
    reason = [pool["reason"].rstrip()] if pool["reason"] is not None else []
    return "\n".join([line, *reason, *advice])


def worker_row(pool: str, worker: Page) -> tuple[str, ...]:
    running = worker.get("running", [])
    runs = [f"{one['what']} {age(one['seconds'])} ({client.named_by(one)})" for one in running[:RUNNING_SHOWN]]
    more = [f"and {len(running) - RUNNING_SHOWN} more"] if len(running) > RUNNING_SHOWN else []
    return (
        f"{pool}/{worker['nr']}",
        "" if worker["pid"] is None else str(worker["pid"]),
        worker["state"],
        str(worker["calls"]),
        rate(worker["calls_per_s"]),
        "" if worker["cpu"] is None else f"{worker['cpu']:.0%}",
        memory(worker).partition(",")[0],
        age(worker["age_s"]),
        ", ".join([*runs, *more]),
    )


def rate(given: float | None) -> str:
    return "-" if given is None else f"{given:,.1f}" if given < 10 else f"{given:,.0f}"
