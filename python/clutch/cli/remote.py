"""Commands for a running `clutch run` or `clutch serve`, or for a program with pools: `ps`, `drain`, `scale`, `reload`,
`recycle`, `stop`, `stack`, `cancel`.

They find it by the config of the working folder, else by the folder that it was started in, and talk to its control
socket.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click

from clutch.cli.flags import as_json
from clutch.cli.table import age, aligned, printable
from clutch.config.options import CONTROL_OFF
from clutch.control import client
from clutch.control.advice import advise
from clutch.control.client import ANSWER_SECONDS_MAX, ControlError, NoAnswer, Process, of_pool
from clutch.control.looking import Look, facts_of, look
from clutch.errors import ConfigError

Command = TypeVar("Command", bound=Callable[..., Any])
PATIENCE_SECONDS = 1.0
"""Until it is said what is waited for."""
END_SECONDS_MAX = 5.0
"""For a process to be gone that was told to end at once."""
SECOND_LOOK_SECONDS = 0.5
"""Time between the two looks of `ps` where work waits."""


def dispatcher_flags(command: Command) -> Command:
    """Adds the flags that name a dispatcher, where the working folder does not tell."""
    command = click.option("--pid", type=int, help="Process id of the server or program.")(command)
    path = click.Path(path_type=Path)
    return click.option(
        "--control",
        "socket",
        type=path,
        envvar="CLUTCH_CONTROL",
        help="Control socket, as given to the server.",
    )(command)


def find(socket: Path | None, pid: int | None, by_call: bool = False, *, only_looks: bool = False) -> Path:
    """The control socket that is meant. Raises ControlError where none is, click.UsageError where several are.

    `by_call`: by the number of a call, which any of this folder may have. `only_looks`: one that was started in another
    folder will do, where there is just one.
    """
    given = given_socket(socket, pid)
    return given if given is not None else choose(client.running(), own_config(), pid, by_call, only_looks).socket


def given_socket(socket: Path | None, pid: int | None) -> Path | None:
    """Returns the socket that the command or the config of this folder names."""
    if socket is not None and socket != Path(CONTROL_OFF):
        return socket
    config = own_config() if pid is None else None
    return None if config is None else own_socket(config)


def find_here() -> list[Path]:
    """The control sockets of all that was started in this folder. Raises ControlError."""
    if (given := given_socket(None, None)) is not None:
        return [given]
    running, config = client.running(), own_config()
    return [one.socket for one in of_this_place(running, config, None)]


def choose(
    running: list[Process], config: Path | None, pid: int | None, by_call: bool = False, only_looks: bool = False
) -> Process:
    """Returns the server, of a server and programs in one folder; of several, the one whose config was named."""
    here = of_this_place(running, config, pid)
    named = client.of_config(here, config) if config is not None and os.environ.get("CLUTCH_CONFIG") else []
    meant = here if by_call else named or [one for one in here if not one.is_program] or here
    if not meant and pid is None and config is None and only_looks:
        meant = running
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise click.UsageError(f"several dispatchers run: choose one with --pid{listed(meant)}")
    raise none_runs(running, config, pid)


def of_this_place(running: list[Process], config: Path | None, pid: int | None) -> list[Process]:
    """Returns the processes with this pid, else those of the working folder, servers first."""
    if pid is not None:
        return [one for one in running if one.pid == pid]
    own = [] if config is None else client.of_config(running, config)
    here = [one for one in client.of_folder(running, Path.cwd()) if one not in own]
    return sorted([*own, *here], key=lambda one: one.is_program)


def none_runs(running: list[Process], config: Path | None, pid: int | None) -> ControlError:
    if pid is not None:
        missing = f"no server or program with pid {pid} runs"
    elif config is not None:
        missing = f"no server of {config} runs, nor any program of this folder"
    else:
        missing = "no server or program was started in this folder"
    if running:
        return ControlError(f"{missing}; others run, choose one with --pid:{listed(running)}")
    return ControlError(f"{missing}; start a server with `clutch run` or `clutch serve`")


def listed(dispatchers: list[Process]) -> str:
    return "".join(f"\n  {one}" for one in dispatchers)


def own_config() -> Path | None:
    from clutch import config

    named = os.environ.get("CLUTCH_CONFIG")
    try:
        return Path(named) if named else config.find()
    except ConfigError:
        return None


def own_socket(config: Path) -> Path | None:
    """Returns the control socket that this config names."""
    from clutch.config.layers import read_file

    try:
        given = read_file(config).get("control")
    except ConfigError:
        return None
    return config.resolve().parent / given if isinstance(given, str) and given != CONTROL_OFF else None


# The commands


@click.command("ps", short_help="Show pools, workers and what they run.")
@dispatcher_flags
@as_json
def ps(socket: Path | None, pid: int | None, as_json: bool) -> None:
    """Show pools and workers of the server and programs that run in this folder.

    With --json the server alone, or the one program; --pid chooses another.
    """
    if as_json:
        path = find(socket, pid, only_looks=True)
        found = {"control": os.fspath(path), **client.get(path, "/pools", ANSWER_SECONDS_MAX)}
        click.echo(json.dumps(found, indent=2))
        return
    if socket not in (None, Path(CONTROL_OFF)):
        path = find(socket, pid, only_looks=True)
        here = {path: look(path)}
    else:
        here = all_here(pid)
    click.echo("\n\n".join(as_text(one.page, advised(path, one)) for path, one in here.items()))


def advised(path: Path, first: Look) -> dict[str, str]:
    """What is plain to advise, by pool. Where something may be, the process is looked at again, a moment later."""
    if not any(map(is_crowded, first.page["pools"])):
        return {}
    time.sleep(SECOND_LOOK_SECONDS)
    try:
        found = [(facts.pool, advise(facts)) for facts in facts_of([first, look(path)])]
    except ControlError:  # it has just ended
        return {}
    return {pool: advice.sentence for pool, advice in found if advice.is_plain}


def is_crowded(pool: dict[str, Any]) -> bool:
    """Whether work waits, or runs beside other work in a worker."""
    return bool(pool["queued"]) or pool["sent"] >= 2 * max(1, pool["ready"])


def all_here(pid: int | None) -> dict[Path, Look]:
    """Returns a look at each process of this folder. Raises ControlError if there is none."""
    running, config, own = client.running(), own_config(), given_socket(None, pid)
    found = {}
    here = of_this_place(running, config, pid)
    if not here and own is None:
        here = [choose(running, config, pid, only_looks=True)]
    sockets = [one.socket for one in here]
    for path in sockets if own is None else [own, *sockets]:
        with contextlib.suppress(NoAnswer):  # it has just ended
            found[path] = look(path)
    if not found:
        raise none_runs(running, config, pid)
    return found


@click.command("drain", short_help="Stop pools from taking work; running and waiting work is finished.")
@click.argument("pool", required=False)
@click.option("--resume", is_flag=True, help="Accept work again.")
@dispatcher_flags
@as_json
def drain(pool: str | None, resume: bool, socket: Path | None, pid: int | None, as_json: bool) -> None:
    """Stop POOL, or all pools, from accepting work. Running and waiting work is finished."""
    action = of_pool(pool, "resume" if resume else "drain")
    say(
        client.post(find(socket, pid), action, ANSWER_SECONDS_MAX),
        as_json,
        "takes work again" if resume else "takes no more work",
    )


@click.command("scale", short_help="Set the number of workers of a pool, or a range.")
@click.argument("pool")
@click.argument("workers", metavar="N|MIN-MAX")
@dispatcher_flags
@as_json
def scale(pool: str, workers: str, socket: Path | None, pid: int | None, as_json: bool) -> None:
    """Set the number of workers of POOL, or the range in which it scales by load."""
    least, most = worker_range(workers)
    done = client.post(find(socket, pid), of_pool(pool, "scale"), ANSWER_SECONDS_MAX, min=least, max=most)
    say(done, as_json, f"{workers} workers")


@click.command("reload", short_help="Reload the code and wait until it is in use.")
@click.argument("pool", required=False)
@dispatcher_flags
@as_json
def reload(pool: str | None, socket: Path | None, pid: int | None, as_json: bool) -> None:
    """Reload the code of POOL, or of all pools, and wait until the new code is in use.

    The certificate of a served app is read anew too. What cannot be used leaves the old one in place; its error is
    shown, and the exit code is 1.
    """
    answer = client.post(find(socket, pid), of_pool(pool, "reload"))
    failed = answer["failed"]
    if as_json:
        click.echo(json.dumps(answer))
    elif not failed:
        click.echo(f"reloaded: {', '.join(answer['pools'])} (pid {answer['pid']}: {answer['config']})")
    if failed:
        raise click.ClickException("\n".join([*failed.values(), "the old code stays in use"]))


@click.command("recycle", short_help="Replace workers and wait until that is done.")
@click.argument("worker", required=False, metavar="[POOL[/NR]]")
@click.option(
    "--kill", is_flag=True, help="End POOL/NR at once; its work is lost, or retried if its caller set options(retry=…)."
)
@dispatcher_flags
@as_json
def recycle(worker: str | None, kill: bool, socket: Path | None, pid: int | None, as_json: bool) -> None:
    """Replace a worker, or all of a pool or of all pools in turn, and wait until that is done. No work is lost."""
    pool, nr = worker_name(worker) if worker is not None else (None, None)
    if kill and nr is None:
        raise click.UsageError("--kill ends one worker: name it, as in api/3")
    path = find(socket, pid)
    with saying_awaited(path, "--kill ends it", pool, nr):
        action = "kill" if kill else "recycle"
        done = client.post(path, of_pool(pool, action if nr is None else f"workers/{nr}/{action}"))
    say(done, as_json, "recycled" if nr is None else f"worker {nr} recycled")


@contextlib.contextmanager
def saying_awaited(path: Path, how: str, pool: str | None = None, nr: int | None = None) -> Iterator[None]:
    """After a while it is said what is waited for, and how that is ended."""
    notice = threading.Timer(PATIENCE_SECONDS, say_awaited, (path, how, pool, nr))
    notice.daemon = True
    notice.start()
    try:
        yield
    finally:
        notice.cancel()


def say_awaited(path: Path, how: str, pool: str | None, nr: int | None) -> None:
    """Prints what runs in the workers that are being replaced."""
    pools: list[dict[str, Any]] = []
    with contextlib.suppress(ControlError):  # it has just ended
        pools = client.get(path, "/pools", ANSWER_SECONDS_MAX)["pools"]
    for one in pools:
        for worker in one["workers"]:
            is_meant = pool in (None, one["name"]) and nr in (None, worker["nr"])
            for running in worker["running"] if is_meant else []:
                name = f"{one['name']}/{worker['nr']}"
                click.echo(f"waiting for {name}, which {running_text(running)}; {how}", err=True)


@click.command("stop", short_help="Shut down gracefully and wait until the process has ended.")
@click.option("--now", is_flag=True, help="Stop at once, without waiting for running work.")
@dispatcher_flags
@as_json
def stop(now: bool, socket: Path | None, pid: int | None, as_json: bool) -> None:
    """Shut down a running server, as SIGTERM does, and wait until it has ended."""
    path = find(socket, pid)
    with client.connected(path) as connection:
        process = os.pidfd_open(connection.pid)
    try:
        stopped = client.get(path, "/process", ANSWER_SECONDS_MAX)
        try:
            client.post(path, "/stop", ANSWER_SECONDS_MAX, now=now)
        except NoAnswer:
            # At once may be before it has answered.
            if not now or not select.select([process], [], [], END_SECONDS_MAX)[0]:
                raise
        with saying_awaited(path, "--now ends it"):
            select.select([process], [], [])
    finally:
        os.close(process)
    click.echo(json.dumps(stopped) if as_json else f"stopped: pid {stopped['pid']}")


@click.command("stack", short_help="Print the Python stacks of a worker or call.")
@click.argument("what", metavar="POOL[/NR]|CALL")
@dispatcher_flags
@as_json
def stack(what: str, socket: Path | None, pid: int | None, as_json: bool) -> None:
    """Print the Python stacks of a worker or of one call, without pausing it."""
    is_call = what.isdecimal()
    if is_call:
        target = f"/calls/{what}/stacks"
    else:
        pool, nr = worker_name(what)
        target = of_pool(pool, "stacks" if nr is None else f"workers/{nr}/stacks")
    stacks = client.get(find(socket, pid, by_call=is_call, only_looks=True), target, ANSWER_SECONDS_MAX)
    if as_json:
        click.echo(json.dumps(stacks, indent=2))
        return
    shown = {worker: text.rstrip() or "no Python code of yours runs" for worker, text in stacks.items()}
    click.echo("\n\n".join(f"{worker}\n{text}" for worker, text in shown.items()))


@click.command("cancel", short_help="Stop one call, waiting or running.")
@click.argument("call", type=int)
@click.option("--pool", help="Pool of the call, if several pools have a call with this id.")
@dispatcher_flags
@as_json
def cancel(call: int, pool: str | None, socket: Path | None, pid: int | None, as_json: bool) -> None:
    """Stop the call with this id, waiting or running; `clutch ps` lists those that run.

    A job is cancelled with it, and does not run again.
    """
    done = client.post(find(socket, pid, by_call=True), f"/calls/{call}/cancel", ANSWER_SECONDS_MAX, pool=pool)
    say(done, as_json, f"call {call} cancelled")


# Words to values


def worker_range(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
    if found is None:
        raise click.UsageError(f"{text!r} is not a number of workers: write 4, or a range such as 2-8")
    least = int(found[1])
    return least, int(found[2] or least)


def worker_name(text: str) -> tuple[str, int | None]:
    """`api/3` or `api`."""
    pool, slash, nr = text.partition("/")
    if slash and not nr.isdecimal():
        raise click.UsageError(f"{text!r} is not a worker: write POOL/NR, as in api/3")
    return pool, int(nr) if slash else None


# Values to words


def say(done: dict[str, Any], as_json: bool, what: str) -> None:
    click.echo(json.dumps(done) if as_json else "\n".join(f"{name}: {what}" for name in done["pools"]))


def as_text(found: dict[str, Any], advised: dict[str, str] | None = None) -> str:
    """`advised`: a sentence for pools."""
    stopping = "; it is shutting down" if found["stopping"] else ""
    head = f"pid {found['pid']}, {found['config']}, for {age(found['age_s'])}{stopping}"
    pools = [pool_text(pool, (advised or {}).get(pool["name"])) for pool in found["pools"]]
    return "\n\n".join([head, *pools, *map(jobs_text, found.get("jobs", ()))])


def jobs_text(jobs: dict[str, Any]) -> str:
    """A front that runs jobs, and the queues of its store."""
    ended = ", ".join(f"{jobs[name]} {name}" for name in ("completed", "retried", "dead"))
    counts = f"{jobs['running']} running; since the start {ended}"
    lines = [f"{jobs['front']}: jobs of {jobs['store']}, in pool {jobs['pool']}; {counts}"]
    if jobs["reason"] is not None:
        lines.append(f"  {jobs['reason']}")
    for queue in jobs["queues"]:
        notes = ", paused" if queue["is_paused"] else ""
        notes += "" if queue["name"] in jobs["served"] else ", not taken from here"
        counts = ", ".join(f"{queue[name]} {name}" for name in ("available", "scheduled", "running", "dead"))
        lines.append(f"  {queue['name']}: {counts}{notes}")
    return "\n".join(lines)


def pool_text(pool: dict[str, Any], advised: str | None = None) -> str:
    counts = ", ".join(f"{pool[name]} {name}" for name in ("queued", "sent", "done", "failed", "restarts"))
    head = f"{pool['name']}: {pool['state']}, {pool['ready']} of {pool['target']} workers ready; {counts}"
    lines = [head] if pool["reason"] is None else [head, f"  {pool['reason'].rstrip()}"]
    if "run_s" in pool:  # not in versions before
        lines.append(f"  {time_text(pool)}")
    if advised is not None:
        lines.append(f"  {printable(advised)}")
    rows = [("worker", "pid", "generation", "state", "calls", "sent", "age", "CPU", "memory")]
    rows += [worker_row(pool["name"], worker) for worker in pool["workers"]]
    shown = [f"  {line}" for line in aligned(rows)]
    lines.append(shown[0])
    for row, worker in zip(shown[1:], pool["workers"], strict=True):
        lines += [row, *(f"    {running_text(one)}" for one in worker["running"])]
    return "\n".join(lines)


def time_text(pool: dict[str, Any]) -> str:
    """How long slots have run work, and what of that was CPU time."""
    run, cpu = pool["run_s"], pool["cpu_s"]
    return f"ran work for {run:.1f} s: CPU {cpu:.1f} s, waiting {max(0.0, run - cpu):.1f} s"


def running_text(one: dict[str, Any]) -> str:
    told = ", told to stop" if one["abandoned"] else ""
    return printable(f"runs {one['what']} for {age(one['seconds'])}{told} ({client.named_by(one)})")


def worker_row(pool: str, worker: dict[str, Any]) -> tuple[str, ...]:
    known = (str(worker[name]) for name in ("generation", "state", "calls", "sent"))
    pid = "" if worker["pid"] is None else str(worker["pid"])
    cpu = "" if worker["cpu_s"] is None else f"{worker['cpu_s']:.1f}s"
    return f"{pool}/{worker['nr']}", pid, *known, age(worker["age_s"]), cpu, memory(worker)


def memory(worker: dict[str, Any]) -> str:
    """Returns the private memory of a worker if that was measured, else its resident memory."""
    private, rss = worker.get("private"), worker.get("rss")
    if private is not None:
        return f"{private / (1 << 20):.0f} MB"
    return "" if rss is None else f"{rss / (1 << 20):.0f} MB, shared included"
