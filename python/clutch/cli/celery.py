"""`clutch work` for a Celery app: what the target's own settings say in place of options, and the node of the app."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from clutch.control import sockets

END_SECONDS = 5.0
"""Longest wait for the end of the node."""


class Node:
    """The process with the app, which tells what it is, and then is the app's node (`clutch/celery/node.py`)."""

    def __init__(self, python: str, target: str, queues: str | None, name: str | None) -> None:
        """Starts it and reads what it tells. Raises UsageError where the target cannot be imported."""
        names = [queue.partition(":")[0].strip() for queue in (queues or "").split(",")]
        command = [python, "-m", "clutch.celery.node", target, name or "", *filter(None, names)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            raise click.UsageError(f"target {target!r} cannot be imported: what it raised is above")
        self.told: dict[str, Any] | None = json.loads(line)

    def take_over(self, pool: dict[str, Any], queues: str | None) -> tuple[str, str]:
        """Gives the pool what the app says of it; returns its store, and the queues to take tasks from."""
        told = self.told or {}
        pool["env"] = {**pool.get("env", {}), "CLUTCH_CELERY_NODE": told["node"]}
        if told["concurrency"] and pool.get("profile", "process") == "process":
            pool.setdefault("workers", told["concurrency"])
        store = f"{told['store']}{'&' if '?' in told['store'] else '?'}node={quote(told['node'])}"
        return store, queues or ",".join(told["queues"])

    @contextlib.contextmanager
    def serving(self, control: Path | None, config: Path) -> Iterator[None]:
        """Lets it be the node of the dispatcher that this process is meanwhile. `control`: its socket, if given."""
        assert self.process.stdin is not None
        path = sockets.place_for(config) if control is None else control.absolute()
        part = {"control": os.fspath(path), "pid": os.getpid(), "queues": (self.told or {})["queues"]}
        with contextlib.suppress(OSError):
            self.process.stdin.write(json.dumps(part) + "\n")
            self.process.stdin.flush()
        try:
            yield
        finally:
            self.end()

    def end(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def node_of(targets: tuple[str, ...], queues: str | None, name: str | None, pool: dict[str, Any]) -> Node | None:
    """The node of the Celery app that the target is, or has; None if it is none."""
    python = pool.get("python")
    if len(targets) != 1 or (python is None and importlib.util.find_spec("celery") is None):
        return None
    node = Node(python or sys.executable, targets[0], queues, name)
    if node.told is not None:
        return node
    node.end()
    if name is not None:
        raise click.UsageError(f"--node: the target {targets[0]!r} is no Celery app, and has none")
    return None
