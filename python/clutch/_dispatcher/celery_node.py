"""The node of a Celery app beside a dispatcher: a process with the app (`clutch/celery/node.py`), which says what it
is, and then is seen by Celery's own tools as a worker. It is started again when it dies, and anew with new code.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from clutch._dispatcher import logs
from clutch.celery import NODE
from clutch.config.options import JOBS, core_json
from clutch.errors import ConfigError

if TYPE_CHECKING:
    from clutch.config import PoolSpec

END_SECONDS = 5.0
"""Longest wait for the end of a node."""
FOLLOWED_SECONDS = 25.0
"""Longest wait for the end of a node that another one follows: it goes on with what it has heard before."""
LISTEN_SECONDS = 10.0
"""Longest wait until a node listens in the place of another: its broker may be away."""
SHOWN_MAX = 20
"""Names of tasks in the log."""
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 1.0, 60.0
"""Before a node that has died is started again: at first, and at most, each twice as long as the one before."""


class Node:
    """The process with the app."""

    def __init__(
        self,
        target: str,
        *,
        name: str = "",
        queues: list[str] | None = None,
        python: str = sys.executable,
        env: Mapping[str, str] | None = None,
        sys_path: list[str] | None = None,
    ) -> None:
        """Starts to import the target. `name`: of the node, `celery@HOST` if empty. `queues`: the app's if empty."""
        asked = {
            "target": target,
            "name": name,
            "queues": queues or [],
            "sys_path": sys_path or [os.getcwd()],
            "token": os.urandom(8).hex(),
        }
        self._command = [python, "-m", "clutch.celery.node", json.dumps(asked)]
        self._env = {**os.environ, **(env or {})}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._part: dict[str, Any] = {}
        self._told: dict[str, Any] | None = None
        self._has_told = False
        self._process = self._spawn()

    def told(self) -> dict[str, Any] | None:
        """What it says of its app, as soon as it does; None: the target has none. Raises ConfigError where it cannot be
        imported, or not be run."""
        if not self._has_told:
            self._told = self._read(self._process)
            self._has_told = True
        return self._told

    def serve(self, part: dict[str, Any]) -> None:
        """Lets it be the node from now on. `part`: what it has to know of the dispatcher."""
        self._part = part
        send(self._process, {**self._part, "follows": False})
        threading.Thread(target=self._keep, name="clutch-node", daemon=True).start()

    def renew(self) -> str | None:
        """Starts it anew, with the code as it is now; returns why it cannot, while the one before goes on."""
        since, fresh = time.time(), self._spawn()
        try:
            if self._read(fresh) is None:
                raise ConfigError("the target has no Celery app any more")
        except ConfigError as error:
            end(fresh)
            return str(error)
        send(fresh, {**self._part, "follows": True})
        line_of(fresh, LISTEN_SECONDS)
        with self._lock:
            before, self._process = self._process, fresh
        send(fresh, {"since": since, "heard": json.loads(end(before, "followed\n", FOLLOWED_SECONDS) or "[]")})
        if self._over.is_set():
            end(fresh)
        return None

    def end(self) -> None:
        self._over.set()
        with self._lock:
            process = self._process
        end(process, "leave\n")

    def _spawn(self) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(self._command, stdin=pipe, stdout=pipe, text=True, env=self._env)

    def _read(self, process: subprocess.Popen[str]) -> dict[str, Any] | None:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            process.wait()
            raise ConfigError("the target cannot be imported: what it raised is above")
        told: dict[str, Any] | None = json.loads(line)
        if told is not None and "error" in told:
            raise ConfigError(told["error"])
        return told

    def _keep(self) -> None:
        """Starts it again when it dies."""
        pause = PAUSE_SECONDS
        while True:
            with self._lock:
                process = self._process
            code = process.wait()
            if self._over.is_set():
                return
            if process is not self._process:
                continue  # there is a new one already
            logs.log.warning("node of the Celery app: ended (exit code %s); tasks go on, a new one starts", code)
            while self.renew() is not None and not self._over.wait(pause):
                pause = min(2 * pause, PAUSE_SECONDS_MAX)
            if self._over.wait(pause):
                return


def send(process: subprocess.Popen[str], what: dict[str, Any]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(OSError, ValueError):  # it has died, and is started again; or it was ended
        process.stdin.write(json.dumps(what) + "\n")
        process.stdin.flush()


def line_of(process: subprocess.Popen[str], at_most: float) -> str:
    """The next lines that a node prints, mostly one; empty: none within this time, or it is gone."""
    assert process.stdout is not None
    until, found = time.monotonic() + at_most, b""
    while not found.endswith(b"\n"):
        if not select.select([process.stdout], [], [], max(0.0, until - time.monotonic()))[0]:
            return ""
        part = os.read(process.stdout.fileno(), 1 << 16)
        if not part:
            return ""
        found += part
    return found.decode()


def end(process: subprocess.Popen[str], word: str = "", at_most: float = END_SECONDS) -> str:
    """Ends a node, which goes with its standard input; returns its last line. `word`: `leave` if nobody comes in its
    place, `followed` if another listens there already."""
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.write(word)
        process.stdin.close()
    until, said = time.monotonic() + at_most, ""
    while line := line_of(process, until - time.monotonic()):
        said += line
    try:
        process.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return said.rpartition("\n")[0].rpartition("\n")[2]


def node_of(front: Mapping[str, Any], pool: PoolSpec) -> Node:
    """Starts the node of a front."""
    queues = [name for name, _ in front["queues"] or ()]
    launch = pool.core["launch"]
    return Node(
        launch["target"],
        name=pool.core["env"][NODE],
        queues=queues,
        python=pool.interpreter.path,
        env=pool.core["env"],
        sys_path=launch["sys_path"],
    )


def front_of(node: Node, place: str, front: Mapping[str, Any]) -> dict[str, Any]:
    """The front as one of jobs, by what the node says of its app. Raises ConfigError."""
    try:
        told = node.told()
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from None
    if told is None:
        what = f"the target of pools.{front['pool']} has no Celery app"
        raise ConfigError(
            f"{place}.pool: {what}; allowed: a pool whose target has one, such as proj or proj.celery:app"
        )
    logs.log.info("%s: %s", place, tasks_line(told["tasks"]))
    for note in told["notes"]:
        logs.log.warning("%s: %s", place, note)
    usual = core_json(JOBS, {option.name: option.default_value(False) for option in JOBS.options})
    given = {name: value for name, value in front.items() if name in usual and value is not None}
    weights = [weight for _, weight in given.get("queues") or ()] or [1] * len(told["queues"])
    # A queue may have another name than that by which the app knows it.
    queues = [[name, weight] for name, weight in zip(told["queues"], weights, strict=True)]
    queues += [[name, 1] for name in told["added"]]
    store = f"{told['store']}{'&' if '?' in told['store'] else '?'}node={quote(told['place'])}"
    return {
        **usual,
        **given,
        "kind": "jobs",
        "queues": queues,
        "strict": given.get("strict") or told["strict"],
        "store": store,
        "pool": front["pool"],
        "cron": [],
    }


def tasks_line(names: list[str]) -> str:
    """`3 tasks: shop.add, shop.fail, shop.send`: whether those that somebody looks for are there."""
    more = f", and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
    shown = ", ".join(names[:SHOWN_MAX]) or "does the app name their modules (include, imports, autodiscover_tasks)?"
    return f"{len(names)} {'task' if len(names) == 1 else 'tasks'}: {shown}{more}"


def part_of(front: Mapping[str, Any], control: Path | None) -> dict[str, Any]:
    """What a node has to know of its dispatcher, which is this process."""
    path = None if control is None else os.fspath(control)
    return {"control": path, "pid": os.getpid(), "pool": front["pool"]}
