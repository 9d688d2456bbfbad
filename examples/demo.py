"""The main job on real work: user code in pools of every profile, called over HTTP and from Python.

Starts `clutch run` on the quickstart's config, calls every tool in every pool over HTTP, streams one answer, stops the
server; then calls the same tools from Python, kills one worker to show that only its call fails, and prints a table.

Run: make demo, or python examples/demo.py
"""

from __future__ import annotations

import http.client
import importlib.util
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from itertools import product

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import clutch
from clutch import Pool
from demonstration import load, servers
from demonstration.table import Cell, table
from demonstration.work import QUICKSTART, TEXT, WORKERS, Case, Profile, cases, profiles

_HTTP_SECONDS = 0.4
_PYTHON_SECONDS = 0.3
_ROUNDS = 2
_OTHER_CALLS = 500
_ANSWER_SECONDS_MAX = 20


def main() -> None:
    if importlib.util.find_spec("gevent") is None:
        sys.exit("the greenlet pool needs gevent: pip install 'clutch[greenlet]'")
    began = time.monotonic()
    sys.path.insert(0, str(QUICKSTART))  # pools import their target with the caller's path
    console = Console(width=None if sys.stdout.isatty() else 150)
    columns = (TextColumn("{task.description:<34}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with servers.slow_server() as socket_path, Progress(*columns, console=console, transient=True) as progress:
        work, pools = cases(socket_path), profiles()
        over_http = _over_http(progress, work, [profile for profile in pools if profile.in_config])
        cells = _from_python(progress, work, pools, over_http)
        _kill_one_worker(console)
    console.print(table(work, pools, cells))
    console.print(f"done in {time.monotonic() - began:.0f} s")


Loads = dict[tuple[str, str], load.Load]
Say = Callable[..., None]


def _over_http(progress: Progress, work: list[Case], pools: list[Profile]) -> Loads:
    """Every tool in every pool of `clutch run`; then one stream, and a check that all pools answer alike."""
    say = progress.console.print
    names = ", ".join(profile.label for profile in pools)
    say(f"[bold]clutch run[/] examples/quickstart/clutch.toml, pools: {names}")
    with servers.clutch_run() as address:
        say(f"ready on http://{address}")
        _answers_alike(say, address, work, pools)
        step = progress.add_task("over HTTP", total=len(work) * len(pools))
        loads = {}
        for profile in pools:
            for case in work:
                progress.update(step, description=f"over HTTP: {profile.label}, {case.tool}")
                loads[case.tool, profile.label] = load.over_http(address, profile.label, case, _HTTP_SECONDS)
                progress.advance(step)
        progress.remove_task(step)
        _stream_one(say, address)
    say("clutch run stopped")
    return loads


def _answers_alike(say: Say, address: str, work: list[Case], pools: list[Profile]) -> None:
    """The same answer from each profile, or the demo ends here."""
    with closing(http.client.HTTPConnection(address)) as connection:
        for case in work:
            answers = [load.http_call(connection, profile.label, case.tool, case.arguments) for profile in pools]
            assert all(answer == answers[0] for answer in answers), f"{case.tool}: {answers}"
            say(f"  {case.tool}: {answers[0]} from all {len(pools)} pools")


def _stream_one(say: Say, address: str) -> None:
    say(f"stream of headings in {TEXT.name}, over HTTP:")
    for after_ms, line in load.http_stream(address, "process", "headings", {"path": str(TEXT)}):
        say(f"  {after_ms:6.1f} ms  {line}")


def _from_python(
    progress: Progress, work: list[Case], pools: list[Profile], over_http: Loads
) -> dict[tuple[str, str], Cell]:
    """The same tools in pools of this process, profiles in turn so that what disturbs one disturbs all."""
    step = progress.add_task("from Python", total=_ROUNDS * len(work) * len(pools))
    cells: dict[tuple[str, str], Cell] = {}
    with ExitStack() as stack:
        started = {
            profile: stack.enter_context(Pool("tools", name=profile.pool_name, **profile.options)) for profile in pools
        }
        for case, _, (profile, pool) in product(work, range(_ROUNDS), started.items()):
            progress.update(step, description=f"from Python: {profile.label}, {case.tool}")
            key = (case.tool, profile.label)
            cell = Cell(load.from_python(pool, case, _PYTHON_SECONDS), _weight(pool), over_http.get(key))
            cells[key] = max(cell, cells.get(key, cell), key=lambda cell: cell.load.calls_per_second)
            progress.advance(step)
    progress.remove_task(step)
    return cells


def _weight(pool: Pool) -> int:
    return servers.pool_pss_bytes([worker["pid"] for worker in pool.stats()["workers"]])


def _kill_one_worker(console: Console) -> None:
    """SIGKILL the worker of an endless stream while many other calls run: that stream fails, nothing else."""
    with Pool("tools", profile="process", workers=WORKERS) as pool:
        ticks = iter(pool.stream("ticks", seconds=0.01))
        pid = next(ticks)
        others = [pool.submit("words", path=str(TEXT)) for _ in range(_OTHER_CALLS)]
        console.print(f"SIGKILL to worker {pid}, which streams, while {len(others)} other calls are under way:")
        os.kill(pid, signal.SIGKILL)
        try:
            for _ in ticks:
                pass
        except clutch.WorkerLost as lost:
            console.print(f"  its stream: WorkerLost: {lost}", markup=False)
        answered = sum(bool(call.result(_ANSWER_SECONDS_MAX)) for call in others)
        pool.wait_ready(WORKERS)
        console.print(f"  other calls answered: {answered} of {len(others)}; workers ready again: {WORKERS}")


if __name__ == "__main__":
    main()
