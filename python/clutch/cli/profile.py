"""`clutch profile`: a sampling profile of a worker that runs, by the profiler of its Python or by py-spy."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from clutch.cli.remote import dispatcher_flags, find, worker_name
from clutch.control import client
from clutch.errors import ClutchError

HAS_OWN = "import importlib.util, sys; sys.exit(importlib.util.find_spec('profiling') is None)"
"""Ends with 0 in a Python with the profiler of PEP 799."""
DENIED = """{name} could not read process {pid}: that needs the right to trace it, as root or with CAP_SYS_PTRACE
(docker run --cap-add SYS_PTRACE), or the value 0 in /proc/sys/kernel/yama/ptrace_scope"""


@dataclass(frozen=True)
class Sampler:
    """A profiler that reads another process's memory."""

    name: str
    suffix: str
    """Suffix of its flame graphs."""
    command: Callable[[int, int, str], list[str]]
    """The command for a process, a number of seconds, and an output file."""


def own_sampler(python: str) -> Sampler:
    """The profiler of Python 3.15 and later, which reads processes of its own version."""

    def command(pid: int, seconds: int, output: str) -> list[str]:
        what = ["attach", "--all-threads", "--duration", str(seconds), "--flamegraph", "--output", output, str(pid)]
        return [python, "-m", "profiling.sampling", *what]

    return Sampler("profiling.sampling", "html", command)


def py_spy(program: str) -> Sampler:
    def command(pid: int, seconds: int, output: str) -> list[str]:
        # With what waits: so a request that hangs shows where, as it does with the other.
        return [program, "record", "--idle", "--pid", str(pid), "--duration", str(seconds), "--output", output]

    return Sampler("py-spy", "svg", command)


@click.command("profile", short_help="Write a flame graph of a worker.")
@click.argument("what", metavar="POOL[/NR]")
@click.option("--seconds", type=click.IntRange(1, 3600), default=10, show_default=True, help="Time to sample.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File to write. [default: profile-POOL-NR.…]")
@dispatcher_flags
def command(what: str, seconds: int, output: Path | None, socket: Path | None, pid: int | None) -> None:
    """Write a flame graph of a worker, without pausing it: where its threads spent their time.

    By `profiling.sampling` of a worker with Python 3.15 or later, else by py-spy, which is to be installed
    (`pip install py-spy`). NR: 0 by default.
    """
    pool, nr = worker_name(what)
    worker = pid_of(
        client.get(find(socket, pid, only_looks=True), "/pools", client.ANSWER_SECONDS_MAX)["pools"], pool, nr or 0
    )
    sampler = sampler_for(os.readlink(f"/proc/{worker}/exe"))
    output = output or Path(f"profile-{pool}-{nr or 0}.{sampler.suffix}")
    done = subprocess.run(sampler.command(worker, seconds, os.fspath(output)), stdout=sys.stderr, check=False)
    if done.returncode != 0 or not output.exists():
        raise ClutchError(DENIED.format(name=sampler.name, pid=worker))
    click.echo(output)


def pid_of(pools: list[dict[str, object]], pool: str, nr: int) -> int:
    named = {str(one["name"]): one for one in pools}
    if pool not in named:
        raise ClutchError(f"there is no pool {pool!r}; there is {', '.join(named)}")
    workers: list[dict[str, int]] = named[pool]["workers"]  # type: ignore[assignment]
    pids = {worker["nr"]: worker["pid"] for worker in workers}
    if nr not in pids:
        raise ClutchError(f"pool {pool!r} has no worker {nr}; it has {', '.join(map(str, sorted(pids)))}")
    return pids[nr]


def sampler_for(python: str) -> Sampler:
    """Raises ClutchError where none is there for this interpreter."""
    if subprocess.run([python, "-c", HAS_OWN], check=False, stderr=subprocess.DEVNULL).returncode == 0:
        return own_sampler(python)
    beside = shutil.which("py-spy", path=os.path.dirname(sys.executable))
    program = beside or shutil.which("py-spy")
    if program is None:
        raise ClutchError("no profiler is there for this Python: pip install py-spy (3.15 and later have their own)")
    return py_spy(program)
