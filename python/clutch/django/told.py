"""What the settings of a Django project say of its tasks: `python -m clutch.django.told mysite.settings`.

A program of its own, since a dispatcher imports no code of its users. Prints JSON: `backends` has the store and the
queues of each `ClutchBackend` in TASKS, by alias, in their order; or `wrong` has a sentence that says what to write.
Without queues, a backend takes tasks of any; then `queues` of the whole has those that the project's tasks name.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

BACKEND = "clutch.django.ClutchBackend"


class Wrong(Exception):
    """A sentence for whoever wrote the command or the settings."""


def settings_of(name: str) -> ModuleType:
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise Wrong(f"there is no module {error.name!r} {where(error.name)}") from None
    if not any(setting.isupper() for setting in dir(module)):
        inner = f"{name}.settings"
        instead = f"write --django {inner}" if is_there(inner) else "name the module that manage.py names"
        raise Wrong(f"{name} is a module without settings: {instead}")
    return module


def where(missing: str) -> str:
    """Where a module was looked for, and what to do."""
    package, _, _ = missing.rpartition(".")
    if not package:
        return f"in {os.getcwd()} or elsewhere on sys.path: start in the folder of manage.py, or set PYTHONPATH"
    modules = sorted(one.name for one in iter_modules(getattr(import_module(package), "__path__", ())))
    return f"in {package}: it has {', '.join(modules[:10]) or 'no modules'}"


def is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ImportError:
        return False


def backends() -> dict[str, Any]:
    """The backends of Clutch in TASKS of the settings, those derived from `ClutchBackend` too."""
    from django.conf import settings
    from django.utils.module_loading import import_string

    from clutch.django import ClutchBackend

    found, missing = {}, []
    for alias, backend in (getattr(settings, "TASKS", None) or {}).items():
        path = backend.get("BACKEND", "")
        try:
            is_own = issubclass(import_string(path), ClutchBackend)
        except ImportError as error:
            # Of a package that workers need not have, or misspelt.
            missing.append(f"TASKS[{alias!r}] names {path}, which cannot be imported ({error}); ")
            continue
        if not is_own:
            continue
        store = (backend.get("OPTIONS") or {}).get("STORE") or os.environ.get("CLUTCH_STORE")
        queues = backend.get("QUEUES", ["default"])
        if isinstance(queues, str):
            raise Wrong(f"QUEUES of TASKS[{alias!r}] is the text {queues!r}: write a list, [{queues!r}]")
        found[alias] = {"store": store, "queues": list(queues)}
    if not found:
        example = {"default": {"BACKEND": BACKEND, "OPTIONS": {"STORE": "sqlite:////var/lib/shop/jobs.db"}}}
        raise Wrong(f"no backend in its TASKS is Clutch's: {''.join(missing)}write TASKS = {json.dumps(example)}")
    return found


def queues_of_tasks() -> list[str]:
    from clutch.django.tasks import tasks

    return sorted({task.queue_name for task in tasks()})


def told(name: str) -> dict[str, Any]:
    try:
        settings_of(name)
        found = backends()
    except Wrong as wrong:
        return {"wrong": str(wrong)}
    is_any = any(not backend["queues"] for backend in found.values())
    return {"backends": found, "queues": queues_of_tasks() if is_any else []}


def main() -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = sys.argv[1]
    # What the project prints goes elsewhere, also that of programs which it starts.
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as output:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        sys.stdout = sys.stderr
        # A path, or a text that is translated late, is as it is written.
        json.dump(told(sys.argv[1]), output, default=str)


if __name__ == "__main__":
    main()
