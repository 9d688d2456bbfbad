"""`clutch doctor`: what this machine and this installation can do, and what will get in the way.

Facts are gathered as one dict, printed as JSON or as tables. A target is imported in a process of its own.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from typing import Any

import click

from clutch.cli.flags import as_json
from clutch.config import interpreter, limits

KERNEL_OLDEST = (5, 10)
DESCRIPTORS_FEW = 4096
IMPORT_TIMEOUT_S = 120.0
EXTRAS = {
    "gevent": "profile greenlet",
    "uvloop": "a faster loop for profile async",
    "watchfiles": "clutch run --reload",
}

UNSAFE_IN_THREADS = {
    "matplotlib.pyplot": "its current figure is one for all threads: @tool(main_thread=True), or profile process",
    "tkinter": "belongs to the main thread: @tool(main_thread=True)",
    "PyQt5.QtWidgets": "belongs to the main thread: @tool(main_thread=True)",
    "PyQt6.QtWidgets": "belongs to the main thread: @tool(main_thread=True)",
    "PySide6.QtWidgets": "belongs to the main thread: @tool(main_thread=True)",
    "gi.repository.Gtk": "belongs to the main thread: @tool(main_thread=True)",
    "boto3": "do not share its default session and resources: one per thread; clients can be shared",
    "netCDF4": "the HDF5 library under it is rarely built for threads: @tool(serial=True)",
    "rpy2.robjects": "R has one thread: @tool(main_thread=True)",
    "nltk.corpus": "loads its data lazily without a lock: touch it at import",
}

_LOOK_INTO = """
import importlib, json, sys
sys.path.insert(0, "")
importlib.import_module(sys.argv[1].partition(":")[0])
gil = getattr(sys, "_is_gil_enabled", lambda: True)()
print("\\n" + json.dumps({"modules": [name for name in sys.argv[2:] if name in sys.modules], "gil": gil}))
"""


@click.command("doctor")
@click.option("--target", help="Also import this target and check the modules that it loads.")
@click.option("--python", "python", help="Interpreter that imports the target.")
@as_json
def command(target: str | None, python: str | None, as_json: bool) -> None:
    """Show interpreters, GIL, CPUs, limits and extras, with advice. Exit code 1: something is broken."""
    facts = gather()
    if target is not None:
        facts["target"] = look_into(target, python)
    facts["advice"], broken = advise(facts)
    facts["ok"] = not broken
    if as_json:
        click.echo(json.dumps(facts, indent=2))
    else:
        _show(facts)
    raise SystemExit(1 if broken else 0)


def gather() -> dict[str, Any]:
    return {
        "clutch": _version("clutch"),
        "extension": _extension(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "gil": getattr(sys, "_is_gil_enabled", lambda: True)(),
        "interpreters": [_interpreter(found) for found in interpreter.find_all()],
        "cpus": {
            "usable": limits.usable_cpus(),
            "affinity": len(os.sched_getaffinity(0)),
            "quota": limits.cpu_quota(),
        },
        "memory": {
            "limit_bytes": limits.memory_limit(),
            "workers": limits.workers_that_fit(),
            "total_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        },
        "descriptors": {"soft": limits.descriptors().soft, "hard": limits.descriptors().hard},
        "extras": {name: _version(name) for name in EXTRAS},
    }


def look_into(target: str, python: str | None) -> dict[str, Any]:
    """Imports the target in a fresh process; says which modules it loads that are unsafe in threads."""
    try:
        path = interpreter.resolve(python, None).path
        command = [path, "-c", _LOOK_INTO, target, *UNSAFE_IN_THREADS]
        done = subprocess.run(command, capture_output=True, text=True, timeout=IMPORT_TIMEOUT_S, check=True)
    except interpreter.NotAnInterpreter as error:
        return {"name": target, "error": f"{python} {error}"}
    except subprocess.CalledProcessError as error:
        return {"name": target, "error": (error.stderr.strip().splitlines() or ["it exited"])[-1]}
    except subprocess.TimeoutExpired:
        return {"name": target, "error": f"its import takes more than {IMPORT_TIMEOUT_S:.0f} s"}
    found = json.loads(done.stdout.splitlines()[-1])
    unsafe = {name: UNSAFE_IN_THREADS[name] for name in found["modules"]}
    return {"name": target, "error": None, "gil": found["gil"], "unsafe_in_threads": unsafe}


def advise(facts: dict[str, Any]) -> tuple[list[str], bool]:
    """Returns the advice, and whether something is broken rather than improvable."""
    broken = [*_broken(facts)]
    return [*broken, *_hints(facts)], bool(broken)


def _broken(facts: dict[str, Any]) -> list[str]:
    advice = []
    if sys.platform != "linux":
        advice.append(f"Clutch runs on Linux only, this is {sys.platform}")
    if _kernel(facts["kernel"]) < KERNEL_OLDEST:
        advice.append(f"kernel {facts['kernel']} is too old: 5.10 or newer is needed")
    if facts["extension"] is not None:
        advice.append(f"the extension does not load: {facts['extension']}")
    target = facts.get("target")
    if target and target["error"]:
        advice.append(f"target {target['name']}: {target['error']}")
    return advice


def _hints(facts: dict[str, Any]) -> list[str]:
    advice = []
    soft, hard = facts["descriptors"]["soft"], facts["descriptors"]["hard"]
    if hard < DESCRIPTORS_FEW:
        advice.append(f"at most {hard} descriptors: enough for small pools; raise the hard limit (ulimit -Hn)")
    elif soft < DESCRIPTORS_FEW:
        advice.append(f"soft limit of {soft} descriptors: Clutch raises its own up to the hard limit of {hard}")
    room, cpus = facts["memory"]["workers"], facts["cpus"]["usable"]
    if room is not None and room < cpus:
        each, limit = limits.WORKER_BYTES >> 20, _gib(facts["memory"]["limit_bytes"])
        advice.append(
            f"{cpus} usable CPUs, and a memory limit of {limit}: room for {room} workers of {each} MB, which is the "
            "default number; with more, look at what each has (clutch ps)"
        )
    if not any(found["free_threaded"] for found in facts["interpreters"]):
        advice.append("no free-threaded Python: profile thread runs pure Python one thread at a time")
    for name, version in facts["extras"].items():
        if version is None:
            advice.append(f"{name} is not installed ({EXTRAS[name]})")
    for name, what in (facts.get("target") or {}).get("unsafe_in_threads", {}).items():
        advice.append(f"{name} is not safe in threads: {what}")
    return advice


def _kernel(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("-")[0].split(".")[:2] if part.isdecimal())


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _extension() -> str | None:
    """Returns why the extension does not load, or None."""
    try:
        importlib.import_module("clutch._core")
    except ImportError as error:
        return str(error)
    return None


def _interpreter(found: interpreter.Interpreter) -> dict[str, Any]:
    return {"path": found.path, "version": found.label, "free_threaded": found.free_threaded}


def _show(facts: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(title=f"clutch {facts['clutch'] or '(not installed)'}", show_header=False, title_justify="left")
    for name, value in _rows(facts):
        table.add_row(name, value)
    console.print(table)
    for line in facts["advice"]:
        console.print(f"• {line}", highlight=False, markup=False)
    console.print("all is well" if facts["ok"] else "something is broken, see above", highlight=False)


def _rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    cpus, memory, descriptors = facts["cpus"], facts["memory"], facts["descriptors"]
    quota = "no quota" if cpus["quota"] is None else f"quota {cpus['quota']:g}"
    limit = "no limit" if memory["limit_bytes"] is None else f"limit {_gib(memory['limit_bytes'])}"
    rows = [
        ("kernel", f"{facts['kernel']} {facts['machine']}"),
        ("GIL here", "on" if facts["gil"] else "off"),
        ("usable CPUs", f"{cpus['usable']} (affinity {cpus['affinity']}, {quota})"),
        ("memory", f"{_gib(memory['total_bytes'])} ({limit})"),
        ("descriptors", f"soft {descriptors['soft']}, hard {descriptors['hard']}"),
        *((f"extra {name}", version or "not installed") for name, version in facts["extras"].items()),
        *((f"Python {found['version']}", found["path"]) for found in facts["interpreters"]),
    ]
    target = facts.get("target")
    if target and not target["error"]:
        unsafe = ", ".join(target["unsafe_in_threads"]) or "nothing known to be unsafe in threads"
        rows.append((f"target {target['name']}", f"GIL {'on' if target['gil'] else 'off'}; {unsafe}"))
    return rows


def _gib(number_bytes: int) -> str:
    return f"{number_bytes / (1 << 30):.1f} GiB"
