"""Every option of Clutch: name, kind, default and one line of doc, once.

From the tables below come the reading of `clutch.toml`, the `CLUTCH_*` variables, the flags, the keyword arguments of
`clutch.Pool`, the JSON that the Rust core gets, the commented file of `clutch init` and docs/config.md
(`python -m clutch.config`). Promises that one `ConfigError` reports everything that is wrong, each with its place.
Does not import the extension.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clutch import interpreter, limits
from clutch.config_layers import Report, merge_settings, merge_variables, nearest, read_file, read_toml
from clutch.errors import ConfigError, Problem
from clutch.interpreter import Interpreter, NotAnInterpreter
from clutch.values import (
    ADDRESS,
    DURATION,
    FLAG,
    FRACTION,
    PATH,
    SIZE,
    SOCKET,
    TARGET,
    TEXT,
    VARIABLES,
    Kind,
    WorkerRange,
    choice,
    whole,
    worker_range,
)

FILE_NAME = "clutch.toml"
WORKERS_MAX = 4096
THREADS_MAX = 4096
TASKS_MAX = 65_536
POOL_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
UNSET: Any = object()


@dataclass(frozen=True, slots=True)
class Option:
    """One option. `default` is written as in TOML; None: there is none, or `default_text` says how it is found."""

    name: str
    kind: Kind
    default: Any
    doc: str
    core: str | None = None
    """Where the value goes in the JSON for the core, dotted."""
    default_text: str | None = None
    python_default: Any = UNSET
    """The default of a `clutch.Pool(...)` where it differs."""
    later: bool = False
    """Part of the grammar, but refused in this version."""

    def default_value(self, from_python: bool) -> Any:
        default = self.python_default if from_python and self.python_default is not UNSET else self.default
        return None if default is None else self.kind.parse(default)


@dataclass(frozen=True, slots=True)
class Section:
    place: str
    doc: str
    options: tuple[Option, ...]

    def option(self, name: str) -> Option | None:
        return next((option for option in self.options if option.name == name), None)

    @property
    def groups(self) -> set[str]:
        """First words of dotted names: `queue`, `recycle`."""
        return {option.name.split(".")[0] for option in self.options if "." in option.name}


# fmt: off
POOL = Section("pools.NAME", "A named set of identical workers with one waiting line.", (
    Option("target", TARGET, None,
           "What the pool runs: a module, or an object in one.", "launch.target", "none; a config file must name one"),
    Option("profile", choice("process", "thread", "async", "greenlet"), "process",
           "How slots are made inside a worker.", "shape.profile"),
    Option("workers", worker_range(WORKERS_MAX), None,
           "Worker processes; of a range, as many as the load needs.", "shape.workers", "by profile"),
    Option("threads", whole(1, THREADS_MAX), None,
           "Threads of a worker that run work (thread), or event loops (async).", "shape.threads", "by profile"),
    Option("tasks", whole(1, TASKS_MAX), None,
           "Tasks or greenlets at a time of each thread.", "shape.tasks", "by profile"),
    Option("python", PATH, None,
           "Interpreter of the workers; a path is relative to the config's folder.", None,
           "the one that runs Clutch"),
    Option("env", VARIABLES, {},
           "Environment variables, set before anything is imported.", None,
           "BLAS threads: max(1, usable CPUs // (workers × threads))"),
    Option("start", choice("fork", "spawn"), "fork",
           "Workers are forked from a preloaded zygote, or started afresh.", "start"),
    Option("start_timeout", DURATION, "60s",
           "A zygote or worker that is not ready by then is killed and started again.", "start_timeout_ms"),
    Option("preload", FLAG, True,
           "Import the target once in the zygote rather than in each worker.", "launch.preload"),
    Option("gil_policy", choice("fail", "warn", "processes"), "warn",
           "On a free-threaded Python, when an import turned the GIL back on.", "launch.gil_policy"),
    Option("deadline", DURATION, None,
           "For work that brings no deadline of its own.", "deadline_ms", "none"),
    Option("queue.limit", whole(1, 10_000_000), 1000,
           "Longest waiting line.", "queue_limit", "1000; no limit for a pool made in Python", None),
    Option("queue.overflow", choice("reject", "block"), "reject",
           "When the line is full: refuse at once, or let the submitter wait.", "overflow"),
    Option("deaths_max", whole(1, 1000), 3,
           "Work that so many workers have died of, in one submission with its retries, is not tried again (Poisoned).",
           "deaths_max"),
    Option("recycle.calls", whole(1, 1 << 53), None,
           "Replace a worker after so many calls.", "recycle_calls", "never"),
    Option("recycle.age", DURATION, None,
           "Replace a worker at this age.", "recycle_age_ms", "never"),
    Option("recycle.memory", SIZE, None,
           "Replace a worker whose private memory (not shared with others) reaches this.",
           "recycle_memory_bytes", "never"),
    Option("recycle.together", whole(1, WORKERS_MAX), 1,
           "So many workers may leave at a time; calls and memory that are used up do not wait for that.",
           "recycle_together"),
    Option("restarts_max", whole(1, 1_000_000), 1000,
           "So many deaths a minute that nobody asked for; beyond that the next starts wait.", "restarts_max"),
    Option("recycle.jitter", FRACTION, 0.1,
           "Fraction by which each worker's limits are drawn lower, so that not all are replaced at once.",
           "recycle_jitter"),
    Option("scale.delay", DURATION, "100ms",
           "A pool with a range of workers grows when work waits for so long.", "scale_delay_ms"),
    Option("scale.idle", DURATION, "30s",
           "It shrinks when fewer workers would have been enough for so long.", "scale_idle_ms"),
    Option("memory_max", SIZE, None,
           "The pool does not grow when its workers' private memory would come to more.", "memory_max_bytes", "none"),
    Option("grace", DURATION, "30s",
           "How long a stop waits for running work.", "grace_ms"),
    Option("interrupt_grace", DURATION, "1s",
           "How long code that was told to stop (deadline, cancel) has for it, before its worker is ended.",
           "interrupt_grace_ms"),
    Option("term_grace", DURATION, "1s",
           "After TERM to a worker and what it started, until KILL.", "term_grace_ms"),
    Option("stopped_limit", DURATION, "30s",
           "A worker that stays stopped (SIGSTOP) for longer is replaced.", "stopped_limit_ms"),
    Option("payload_max", SIZE, "1GB",
           "Largest arguments or result of one call.", "payload_bytes_max"),
    Option("output_kept", SIZE, "8KB",
           "The last of a worker's output that its WorkerLost error shows.", "output_kept_bytes"),
    Option("required", FLAG, True,
           "Whether /readyz waits for this pool.", "required"),
))

TOP = Section("", "Of the dispatcher itself.", (
    Option("control", SOCKET, None,
           "The control socket that `clutch ps` and the like talk to; relative to the config's folder.",
           None, "in a private folder of the user, found by itself"),
))

TOKEN = Option("token", TEXT, None, "`Authorization: Bearer …` that every request must bring.", "token", "none")
INSECURE = Option("insecure", FLAG, False, "Allow an address beyond loopback without a token.")

HTTP = Section("fronts.http", "Calls over HTTP and JSON.", (
    Option("bind", ADDRESS, "127.0.0.1:8080", "Where it listens.", "bind"),
    TOKEN,
    INSECURE,
    Option("body_max", SIZE, "16MB", "Largest request body.", "body_bytes_max"),
    Option("head_max", SIZE, "64KB", "Largest request head.", "head_bytes_max"),
    Option("head_timeout", DURATION, "10s", "A client that has not sent its head by then is cut off.",
           "head_timeout_ms"),
    Option("body_timeout", DURATION, "30s", "A client that has not sent its body by then is cut off.",
           "body_timeout_ms"),
    Option("connections_max", whole(1, 1_000_000), 4096, "Most connections at a time.", "connections_max"),
))

ADMIN = Section("fronts.admin", "Health, readiness and metrics: /healthz, /readyz, /metrics.", (
    Option("bind", ADDRESS, "127.0.0.1:9180", "Where it listens.", "bind"),
    TOKEN,
    INSECURE,
))
# fmt: on

FRONTS = {"http": HTTP, "admin": ADMIN}
LATER_FRONTS = ("serve", "tcp", "grpc")
LATER_TOP = ("jobs", "stores")

BLAS_VARIABLES = (
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """A pool with every option decided. `core` is the JSON of the core's PoolConfig, as a dict."""

    name: str
    values: Mapping[str, Any]
    """By the option's name, in Python's units: seconds, bytes."""
    interpreter: Interpreter
    core: dict[str, Any]
    warnings: tuple[str, ...] = ()
    folder: Path | None = None
    """Of the config file; None for a pool made in Python."""

    @property
    def slots(self) -> int:
        shape = self.core["shape"]
        return shape["workers"] * shape["threads"] * shape["tasks"]

    def core_json(self) -> str:
        return json.dumps(self.core)


@dataclass(frozen=True, slots=True)
class Config:
    """A whole configuration, checked. `http` and `admin` are the JSON of the core's front configs, as dicts."""

    file: Path
    pools: tuple[PoolSpec, ...]
    http: dict[str, Any] | None
    admin: dict[str, Any] | None
    control: Path | None = None

    @property
    def warnings(self) -> list[str]:
        return [f"pools.{pool.name}: {warning}" for pool in self.pools for warning in pool.warnings]


def load(
    path: str | os.PathLike[str] | None = None,
    *,
    settings: Iterable[str] = (),
    insecure: bool = False,
    environ: Mapping[str, str] | None = None,
) -> Config:
    """Reads `path`, or the nearest config upward from the working folder, and what overrides it.

    `settings` are texts such as `pools.api.workers=4`; they win over variables (`CLUTCH_POOLS_API_WORKERS`), which
    win over the file. Raises `ConfigError` with all problems.
    """
    environ = os.environ if environ is None else environ
    file = Path(path) if path is not None else find()
    raw = read_file(file)
    report = Report(source=str(file))
    merge_variables(raw, environ, dict(_places(raw)), report)
    merge_settings(raw, settings, _kind_at, report)
    if insecure:
        _mark_insecure(raw.get("fronts"))
    config = _config(raw, file, environ, report)
    report.raise_if_any()
    return config


def resolve(name: str = "pool", *, validate: bool = False, folder: Path | None = None, **options: Any) -> PoolSpec:
    """A pool made in Python: the same options by keyword, nested as in TOML. Raises `ConfigError`.

    `validate`: a network front can reach it. `folder`: treat it as if a config in that folder described it.
    """
    report = Report()
    given = _read(POOL, {key: value for key, value in options.items() if value is not None}, "Pool", report)
    if not POOL_NAME.fullmatch(name):
        _bad_name("Pool.name", name, report)
    spec = _pool(name, given, "Pool", folder, validate, os.environ, report)
    report.raise_if_any()
    return spec


def find(start: Path | None = None) -> Path:
    """The nearest `clutch.toml`, or pyproject.toml with `[tool.clutch]`, upward from `start`."""
    start = (start or Path.cwd()).resolve()
    for folder in (start, *start.parents):
        if (folder / FILE_NAME).is_file():
            return folder / FILE_NAME
        project = folder / "pyproject.toml"
        if project.is_file() and "clutch" in read_toml(project).get("tool", {}):
            return project
    what = f"no {FILE_NAME} and no pyproject.toml with [tool.clutch], here or above; `clutch init` writes one"
    raise ConfigError(problems=[Problem(str(start), what)])


def _places(raw: Mapping[str, Any]) -> Iterator[tuple[str, Kind]]:
    """Every place that a variable may set: the options of the file's pools and of all fronts."""
    for option in TOP.options:
        yield option.name, option.kind
    pools = raw.get("pools")
    sections = [(f"pools.{name}", POOL) for name in (pools if isinstance(pools, dict) else ())]
    sections += [(section.place, section) for section in FRONTS.values()]
    for place, section in sections:
        for option in section.options:
            yield f"{place}.{option.name}", option.kind


def _kind_at(place: str) -> Kind | None:
    if (option := TOP.option(place)) is not None:
        return option.kind
    head, _, rest = place.partition(".")
    name, _, option_name = rest.partition(".")
    section = POOL if head == "pools" else FRONTS.get(name) if head == "fronts" else None
    option = section.option(option_name) if section else None
    return option.kind if option else None


def _mark_insecure(fronts: Any) -> None:
    for front in fronts.values() if isinstance(fronts, dict) else ():
        if isinstance(front, dict):
            front["insecure"] = True


# Checking: the nested dict becomes a Config.


def _config(raw: Mapping[str, Any], file: Path, environ: Mapping[str, str], report: Report) -> Config:
    for name in raw:
        if name not in ("pools", "fronts") and TOP.option(name) is None:
            _unknown_table(name, name, LATER_TOP, ("pools", "fronts"), report)
    top: dict[str, Any] = {}
    for option in TOP.options:
        if option.name in raw:
            _parse(option, raw[option.name], option.name, top, report)
    folder = file.resolve().parent
    fronts = {name: _front(name, value, folder, report) for name, value in _tables(raw, "fronts", report)}
    pools = []
    for name, value in _tables(raw, "pools", report):
        pools.append(_config_pool(name, value, folder, "http" in fronts, environ, report))
    if not raw.get("pools"):
        report.add("pools", "there is no pool", allowed="at least one [pools.NAME]")
    _check_distinct_binds(fronts, report)
    control = folder / top["control"] if "control" in top else None
    return Config(file, tuple(pools), fronts.get("http"), fronts.get("admin"), control)


def _tables(raw: Mapping[str, Any], place: str, report: Report) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The tables under `place`, those that are not tables being reported."""
    outer = raw.get(place, {})
    if not isinstance(outer, dict):
        report.add(place, "is not a table", given=_show(outer))
        return
    for name, value in outer.items():
        if isinstance(value, dict):
            yield name, value
        else:
            report.add(f"{place}.{name}", "is not a table", given=_show(value), allowed=f"[{place}.{name}]")


def _unknown_table(place: str, name: str, later: Iterable[str], known: Iterable[str], report: Report) -> None:
    if name in later:
        report.add(place, "not in this version")
    else:
        report.unknown(place, "no such table", name, known)


def _front(name: str, raw: Mapping[str, Any], folder: Path, report: Report) -> dict[str, Any]:
    place = f"fronts.{name}"
    if name not in FRONTS:
        _unknown_table(place, name, LATER_FRONTS, FRONTS, report)
        return {}
    section = FRONTS[name]
    given = _read(section, raw, place, report)
    values = {option.name: given.get(option.name, option.default_value(False)) for option in section.options}
    bind = values["bind"] = values["bind"].under(folder)
    if not (bind.is_local or values["token"] or values["insecure"]):
        allowed = "a loopback address, a Unix socket, a token, or insecure = true (--insecure)"
        report.add(f"{place}.bind", "an address beyond loopback needs a token", given=str(bind), allowed=allowed)
    return core_json(section, values)


def _check_distinct_binds(fronts: Mapping[str, Mapping[str, Any]], report: Report) -> None:
    first_at: dict[str, str] = {}
    for name, front in fronts.items():
        bind = front.get("bind", "")
        if bind and not bind.endswith(":0") and (other := first_at.setdefault(bind, name)) != name:
            report.add(f"fronts.{name}.bind", f"fronts.{other} listens there too", given=bind)


def _config_pool(
    name: str,
    raw: Mapping[str, Any],
    folder: Path,
    validate: bool,
    environ: Mapping[str, str],
    report: Report,
) -> PoolSpec:
    place = f"pools.{name}"
    if not POOL_NAME.fullmatch(name):
        _bad_name(place, name, report)
    given = _read(POOL, raw, place, report)
    if "target" not in raw:
        report.add(f"{place}.target", "is missing", allowed=TARGET.allowed)
    return _pool(name, given, place, folder, validate, environ, report)


def _bad_name(place: str, name: str, report: Report) -> None:
    allowed = "a letter, then letters, digits, - and _, at most 64 in all"
    report.add(place, "not a name for a pool", given=_show(name), allowed=allowed)


def _read(section: Section, raw: Mapping[str, Any], place: str, report: Report) -> dict[str, Any]:
    """The given options of a section, parsed; those that cannot be are reported and left out."""
    values = {}
    for name, value in _flat(section, raw, place, report):
        option = section.option(name)
        if option is None:
            shown = [option.name for option in section.options if not option.later]
            report.unknown(f"{place}.{name}", "no such option", name, shown)
        elif option.later:
            report.add(f"{place}.{name}", "not in this version", given=_show(value))
        else:
            _parse(option, value, f"{place}.{name}", values, report)
    return values


def _flat(section: Section, raw: Mapping[str, Any], place: str, report: Report) -> Iterator[tuple[str, Any]]:
    for name, value in raw.items():
        if name not in section.groups:
            yield name, value
        elif isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", inner_value) for inner, inner_value in value.items())
        else:
            inner = [option.name for option in section.options if option.name.startswith(f"{name}.")]
            report.add(f"{place}.{name}", "is not a table", given=_show(value), allowed=", ".join(inner))


def _parse(option: Option, value: Any, place: str, values: dict[str, Any], report: Report) -> None:
    kind = option.kind
    try:
        values[option.name] = kind.parse(value)
    except ValueError:
        name = nearest(value, kind.names) if isinstance(value, str) else None
        given = "(not shown)" if option is TOKEN else _show(value)
        report.add(place, "a wrong value", given=given, allowed=kind.allowed, nearest=name)


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


# Deciding: a pool's options become a PoolSpec.


def _pool(
    name: str,
    given: dict[str, Any],
    place: str,
    folder: Path | None,
    validate: bool,
    environ: Mapping[str, str],
    report: Report,
) -> PoolSpec:
    from_python = folder is None
    values = {option.name: given.get(option.name, option.default_value(from_python)) for option in POOL.options}
    python = _interpreter(values["python"], place, folder, report)
    cpus = limits.usable_cpus()
    values |= {key: given.get(key, default) for key, default in shape_defaults(values["profile"], python, cpus).items()}
    _check_shape(values, python, place, report)
    added, warnings = _blas(values, environ, cpus)
    values["env"] = added | values["env"]
    core = {"name": name, "python": python.path, "env": values["env"], **core_json(POOL, values)}
    core["workers_min"] = values["workers"].min
    core["launch"] |= _launch(core, folder, validate)
    return PoolSpec(name, values, python, core, warnings, folder)


def _interpreter(python: str | None, place: str, folder: Path | None, report: Report) -> Interpreter:
    try:
        return interpreter.resolve(python, folder)
    except NotAnInterpreter as error:
        report.add(f"{place}.python", str(error), given=python, allowed=PATH.allowed)
        return interpreter.current()


def shape_defaults(profile: str, python: Interpreter, cpus: int) -> dict[str, Any]:
    """Workers, threads and tasks of a profile, where the config names none."""
    workers = 1 if profile == "thread" and python.free_threaded else cpus
    return {
        "workers": WorkerRange(workers, workers),
        "threads": 8 if profile == "thread" else 1,
        "tasks": 256 if profile in ("async", "greenlet") else 1,
    }


# Options that a profile fixes at 1, and what to take instead.
FIXED_AT_ONE = {
    "process": {"threads": "profile thread", "tasks": "profile async or greenlet"},
    "thread": {"tasks": "more threads, or profile async or greenlet"},
    "greenlet": {"threads": "more workers or tasks"},
    "async": {},
}


def _check_shape(values: Mapping[str, Any], python: Interpreter, place: str, report: Report) -> None:
    profile = values["profile"]
    for name, instead in FIXED_AT_ONE[profile].items():
        if values[name] != 1:
            report.add(
                f"{place}.{name}", f"profile {profile} has one", given=str(values[name]), allowed=f"1; {instead}"
            )
    if profile == "greenlet" and python.free_threaded:
        what = f"gevent does not build on free-threaded Python ({python.label})"
        report.add(f"{place}.profile", what, given=profile, allowed="process, thread, async")


def _blas(values: Mapping[str, Any], environ: Mapping[str, str], cpus: int) -> tuple[dict[str, str], tuple[str, ...]]:
    """Thread counts for the BLAS family that nobody has set, and a warning where the user's own are too many."""
    runners = values["workers"].max * values["threads"]
    set_by_user = {**environ, **values["env"]}
    added, warnings = {}, []
    for variable in BLAS_VARIABLES:
        if variable not in set_by_user:
            added[variable] = str(max(1, cpus // runners))
        elif _oversubscribes(set_by_user[variable], runners, cpus):
            number = set_by_user[variable]
            warnings.append(f"{variable}={number} with {runners} workers × threads is more than {cpus} usable CPUs")
    return added, tuple(warnings)


def _oversubscribes(text: str, runners: int, cpus: int) -> bool:
    return text.isdecimal() and int(text) > 1 and int(text) * runners > cpus


def _launch(core: Mapping[str, Any], folder: Path | None, validate: bool) -> dict[str, Any]:
    """What the zygote is told. `sys_path`, `main` and `initializer` of a pool made in Python are added by it."""
    cwd = None if folder is None else os.getcwd()
    return {
        **core["shape"],
        "sys_path": [] if folder is None else list(dict.fromkeys([str(folder), os.getcwd()])),
        "cwd": cwd,
        "main": None,
        "initializer": None,
        "validate": validate,
    }


def core_json(section: Section, values: Mapping[str, Any]) -> dict[str, Any]:
    core: dict[str, Any] = {}
    for option in section.options:
        if option.core is not None:
            value = values[option.name]
            *outer, last = option.core.split(".")
            table = core.setdefault(outer[0], {}) if outer else core
            table[last] = None if value is None else option.kind.core(value)
    return core


if __name__ == "__main__":
    from clutch.config_pages import reference

    print(reference(), end="")
