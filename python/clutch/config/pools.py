"""Pools: the options that are given become a `PoolSpec`, in which every option is decided."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clutch.config import interpreter, limits
from clutch.config.interpreter import Interpreter, NotAnInterpreter
from clutch.config.layers import Report
from clutch.config.options import POOL, PROFILES, core_json
from clutch.config.tables import check_name, read
from clutch.config.values import PATH, TARGET, WorkerRange

PACKAGE_PATH = str(Path(__file__).parents[2])
"""The folder from which this program has the package."""
APP_PROFILE = "async"
"""Profile of a pool that runs an app, unless one is given; the zygote takes another for a WSGI app."""

BLAS_VARIABLES = (
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
BLAS_SET_BY_CLUTCH = "CLUTCH_BLAS_THREADS"
"""In a worker: the count that it has from its pool. A pool made there counts anew."""


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """A pool with every option decided. `core` is the JSON of the core's PoolConfig, as a dict."""

    name: str
    values: Mapping[str, Any]
    """Values by option name, in seconds and bytes."""
    interpreter: Interpreter
    core: dict[str, Any]
    warnings: tuple[str, ...] = ()
    folder: Path | None = None
    """The folder of the config file; None for a pool made in Python."""

    @property
    def slots(self) -> int:
        shape = self.core["shape"]
        return shape["workers"] * shape["threads"] * shape["tasks"]

    def core_json(self) -> str:
        return json.dumps(self.core)


@dataclass(frozen=True, slots=True)
class Use:
    """Way by which work reaches a pool."""

    validate: bool = False
    """True if a network front calls its tools."""
    target: str | None = None
    """The app of a serve or tcp front."""
    app: Mapping[str, Any] | None = None
    """The options of that app, for the zygote."""
    front: str = ""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Place of a pool's description. `folder`: that of the config; None: in Python."""

    folder: Path | None
    environ: Mapping[str, str]
    report: Report


def resolve(name: str = "pool", *, validate: bool = False, folder: Path | None = None, **options: Any) -> PoolSpec:
    """A pool made in Python: the same options by keyword, nested as in TOML. Raises `ConfigError`.

    `validate`: a network front can reach it. `folder`: treat it as if a config in that folder described it.
    """
    around = Surroundings(folder, os.environ, Report())
    given = read(POOL, {key: value for key, value in options.items() if value is not None}, "Pool", around.report)
    check_name(name, "Pool.name", around.report)
    spec = _decide(name, given, "Pool", Use(validate), around)
    around.report.raise_if_any()
    return spec


def pool_of_config(name: str, raw: Mapping[str, Any], use: Use, around: Surroundings) -> PoolSpec:
    place = f"pools.{name}"
    check_name(name, place, around.report)
    given = read(POOL, raw, place, around.report)
    if use.app is not None:
        _check_own_target(given, place, use, around.report)
    elif "target" not in raw:
        around.report.add(f"{place}.target", "is missing", allowed=TARGET.allowed)
    return _decide(name, given, place, use, around)


def _check_own_target(given: dict[str, Any], place: str, use: Use, report: Report) -> None:
    own = given.setdefault("target", use.target)
    if use.target is not None and own != use.target:
        what = f"this pool runs {use.target}, the app of fronts.{use.front}"
        report.add(f"{place}.target", what, given=own, allowed="no target here, or another pool for that front")


def _decide(name: str, given: dict[str, Any], place: str, use: Use, around: Surroundings) -> PoolSpec:
    folder, report = around.folder, around.report
    values = {option.name: given.get(option.name, option.default_value(folder is None)) for option in POOL.options}
    if use.app is not None:
        values["profile"] = given.get("profile", APP_PROFILE)
    python = _interpreter(values["python"], place, folder, report)
    cpus = limits.usable_cpus()
    values |= {key: given.get(key, default) for key, default in shape_defaults(values["profile"], python, cpus).items()}
    _check_shape(values, python, place, report)
    added, warnings = _blas(values, around.environ, cpus, limits.whole_cpus())
    if "workers" not in given and values["workers"].max < cpus and (room := limits.workers_that_fit() or cpus) < cpus:
        what = f"{cpus} usable CPUs, and a memory limit of {(limits.memory_limit() or 0) >> 20} MB"
        warnings += (f"{what}: {room} worker{'s' * (room > 1)} by default; set workers for another number",)
    values["env"] = added | values["env"]
    core = {"name": name, "python": python.path, "env": values["env"], **core_json(POOL, values)}
    core["workers_min"] = values["workers"].min
    core["package_path"] = PACKAGE_PATH if python.path == sys.executable else None
    core["launch"] |= _launch(core, folder, use) | {
        "profile_given": "profile" in given,
        "tasks_given": "tasks" in given,
    }
    return PoolSpec(name, values, python, core, warnings, folder)


def _interpreter(python: str | None, place: str, folder: Path | None, report: Report) -> Interpreter:
    try:
        return interpreter.resolve(python, folder)
    except NotAnInterpreter as error:
        report.add(f"{place}.python", str(error), given=python, allowed=PATH.allowed)
        return interpreter.current()


def shape_defaults(profile: str, python: Interpreter, cpus: int) -> dict[str, Any]:
    """Workers, threads and tasks of a profile, where the config names none."""
    workers = 1 if profile == "thread" and python.free_threaded else min(cpus, limits.workers_that_fit() or cpus)
    defaults = PROFILES[profile]
    return {"workers": WorkerRange(workers, workers), "threads": defaults.threads, "tasks": defaults.tasks}


def _check_shape(values: Mapping[str, Any], python: Interpreter, place: str, report: Report) -> None:
    profile = values["profile"]
    for name, instead in PROFILES[profile].fixed.items():
        if values[name] != 1:
            report.add(
                f"{place}.{name}", f"profile {profile} has one", given=str(values[name]), allowed=f"1; {instead}"
            )
    if profile == "greenlet" and python.free_threaded:
        what = f"gevent does not build on free-threaded Python ({python.label})"
        report.add(f"{place}.profile", what, given=profile, allowed="process, thread, async")


def _blas(
    values: Mapping[str, Any], environ: Mapping[str, str], cpus: int, whole_cpus: int
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Thread counts for the BLAS family that nobody has set, and a warning where the user's own are too many."""
    runners = values["workers"].max * values["threads"]
    count = str(max(1, whole_cpus // runners))
    of_outer_pool = environ.get(BLAS_SET_BY_CLUTCH)
    set_by_user = {name: text for name, text in environ.items() if text != of_outer_pool} | values["env"]
    added, warnings = {BLAS_SET_BY_CLUTCH: count}, []
    for variable in BLAS_VARIABLES:
        if variable not in set_by_user:
            added[variable] = count
        elif _oversubscribes(set_by_user[variable], runners, cpus):
            number = set_by_user[variable]
            warnings.append(f"{variable}={number} with {runners} workers × threads is more than {cpus} usable CPUs")
    return added, tuple(warnings)


def _oversubscribes(text: str, runners: int, cpus: int) -> bool:
    return text.isdecimal() and int(text) > 1 and int(text) * runners > cpus


def _launch(core: Mapping[str, Any], folder: Path | None, use: Use) -> dict[str, Any]:
    """Returns the orders for the zygote. A pool made in Python adds `sys_path`, `main` and `initializer`."""
    cwd = None if folder is None else os.getcwd()
    return {
        **core["shape"],
        "sys_path": [] if folder is None else list(dict.fromkeys([str(folder), os.getcwd()])),
        "cwd": cwd,
        "main": None,
        "initializer": None,
        "validate": use.validate,
        "app": use.app,
    }
