"""What `clutch work --django` takes from the settings of a project: the store and the queues of its tasks.

The settings are imported by a process of their own (`clutch.django.told`), with the interpreter and the environment of
the workers. Which store and which queues are taken is decided here: pure.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from clutch.config import interpreter

TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Taken:
    """What a command without `--store` or `--queues` takes."""

    store: str | None
    """None: TASKS names none."""
    queues: tuple[str, ...]
    notes: tuple[str, ...]
    """Sentences for the log."""


def ask(settings: str, python: str | None, env: Mapping[str, str]) -> dict[str, Any]:
    """Raises `UsageError` where the settings cannot be imported, or have no backend of Clutch."""
    told = f"--django {settings}"
    try:
        path = interpreter.resolve(python, None).path if python else sys.executable
        command = [path, "-m", "clutch.django.told", settings]
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S, env={**os.environ, **env}
        )
    except interpreter.NotAnInterpreter as error:
        raise click.UsageError(f"--python {python} {error}") from None
    except subprocess.TimeoutExpired:
        raise click.UsageError(f"{told}: the import of the settings takes more than {TIMEOUT_S:.0f} s") from None
    if done.returncode != 0:
        click.echo(done.stderr.rstrip(), err=True)
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        hint = need(last)
        raise click.UsageError(f"{told}: the project cannot be imported{f' by {path}' if hint else ''}: {last}{hint}")
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        click.echo(done.stderr.rstrip(), err=True)
        raise click.UsageError(f"{told}: the import of the settings ends the program, with the exit code 0") from None
    if "wrong" in answer:
        raise click.UsageError(f"{told}: {answer['wrong']}")
    return answer


def need(last: str) -> str:
    """What to install, if that is what the last line of a traceback says."""
    for module, package in (("django_tasks", "django-tasks, or Django 6"), ("django", "Django"), ("clutch", "clutch")):
        if last in (f"ModuleNotFoundError: No module named {name!r}" for name in (module, f"{module}.base")):
            return f"; install {package} there"
    return ""


def taken(settings: str, told: Mapping[str, Any], store: str | None) -> Taken:
    """`store`: the one of the command line. One process serves one store: that of the alias `default`, unless all that
    are Clutch's have the same, or one is given."""
    backends: Mapping[str, Any] = told["backends"]
    stores = {alias: backend["store"] for alias, backend in backends.items()}
    if store is None and len(set(stores.values())) > 1 and "default" not in stores:
        raise click.UsageError(
            f"--django {settings}: the backends {', '.join(stores)} in TASKS have different stores: name one by "
            "--store, and start a `clutch work` for each"
        )
    chosen = store or stores.get("default", next(iter(stores.values())))
    served = [alias for alias, of in stores.items() if of == chosen] or list(stores)
    others = [alias for alias in stores if alias not in served]
    queues = queues_of([backends[alias] for alias in served], told["queues"])
    notes = [f"tasks of {aliases(served)}, from the queues {', '.join(queues)}"]
    if any(not backends[alias]["queues"] for alias in served):
        notes.append(
            "QUEUES is empty, so tasks may be in any queue: those above are the ones that the tasks of the project "
            "name; give others by --queues"
        )
    if others:
        notes.append(f"{aliases(others)} has another store: start another `clutch work` with its --store")
    return Taken(chosen, tuple(queues), tuple(notes))


def aliases(names: Sequence[str]) -> str:
    return " and ".join(f"TASKS[{name!r}]" for name in names)


def queues_of(backends: Sequence[Mapping[str, Any]], named: Sequence[str]) -> list[str]:
    """`named`: the queues that tasks name, where a backend takes any."""
    own = [queue for backend in backends for queue in backend["queues"] or ["default", *named]]
    return list(dict.fromkeys(own))
