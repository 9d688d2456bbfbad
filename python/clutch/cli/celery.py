"""`clutch work` for a Celery app: what the target's own settings say in place of options."""

from __future__ import annotations

import importlib.util
import logging
import os
import signal
import sys
from typing import Any

import click
from click.core import ParameterSource

from clutch._dispatcher.celery_node import Node
from clutch._process.signals import OF_WORK, Action, Actions
from clutch.errors import ConfigError

SIZES = "profile", "workers", "threads", "tasks"


def node_of(targets: tuple[str, ...], queues: str | None, name: str | None, pool: dict[str, Any]) -> Node | None:
    """The node of the Celery app that the target is, or has; None if it is none. Gives the pool what the app says of
    it. Raises ConfigError, UsageError."""
    python = pool.get("python")
    if len(targets) != 1 or (python is None and importlib.util.find_spec("celery") is None):
        return None
    names = [queue.partition(":")[0].strip() for queue in (queues or "").split(",")]
    given = {"queues": [*filter(None, names)], "python": python or sys.executable, "env": pool.get("env")}
    node = Node(targets[0], name=name or "", **given)
    try:
        told = node.told()
    except ConfigError as error:
        raise ConfigError(str(error)) from None
    if told is not None:
        take_over(told, pool)
        return node
    node.end()
    if name is not None:
        raise click.UsageError(f"--node: the target {targets[0]!r} is no Celery app, and has none")
    return None


def take_over(told: dict[str, Any], pool: dict[str, Any]) -> None:
    """Gives the pool what the app says of it, unless an option has. Who chooses another profile chooses its sizes."""
    of_app = dict(told["pool"])
    if pool.get("profile", of_app.get("profile", "process")) != of_app.get("profile", "process"):
        of_app = {name: value for name, value in of_app.items() if name not in SIZES}
    for name, value in of_app.items():
        pool.setdefault(name, value)


def log_as_told(context: click.Context, pool: dict[str, Any]) -> None:
    """Lets Celery's own log have the level that was typed; its default is less than that of Clutch."""
    if context.get_parameter_source("log_level") is ParameterSource.COMMANDLINE:
        level = logging.getLevelNamesMapping()[context.params["log_level"].upper()]
        pool["env"] = {"CELERY_LOG_LEVEL": str(level), **pool.get("env", {})}


def stops_of(told: dict[str, Any]) -> tuple[Actions, float]:
    """What signals mean, of which Celery lets the environment change SIGTERM, and the grace of a quick stop."""
    is_remapped = os.environ.get("REMAP_SIGTERM") == "SIGQUIT"
    actions = OF_WORK | {signal.SIGTERM: Action.STOP_QUICKLY} if is_remapped else OF_WORK
    return actions, float(told["soft_shutdown"] or 0.0)
