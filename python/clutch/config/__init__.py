"""Configurations: read, merged from their layers, checked, and every option of a pool decided.

What options there are is in options.py. Promises that one `ConfigError` reports everything that is wrong, each with its
place. Does not import the extension.
"""

from __future__ import annotations

import dataclasses
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clutch.config import interpreter, limits
from clutch.config.cron import CronSpec, decide
from clutch.config.interpreter import Interpreter, NotAnInterpreter
from clutch.config.layers import Report, merge_settings, merge_variables, nearest, read_file, read_toml, variable_name
from clutch.config.log_format import WrongFormat
from clutch.config.options import (
    CONTROL_OFF,
    CRON,
    FRONTS,
    POOL,
    PROFILES,
    STORE,
    TOKEN,
    TOP,
    Option,
    Section,
    core_json,
)
from clutch.config.values import FILE, PATH, POOL_NAME, SCHEDULE, TARGET, TEXT, Kind, WorkerRange, under_folder
from clutch.errors import ConfigError, Problem

FILE_NAME = "clutch.toml"
LATER_FRONTS = ("grpc",)
APPS = {kind: section.app for kind, section in FRONTS.items() if section.app is not None}
"""Kinds of fronts that run an app of the user's, and the option that names it."""
TABLES = ("pools", "fronts", "stores", "cron")

APP_PROFILE = "async"
"""Of a pool that runs an app, unless the profile is given; the zygote takes another one for a WSGI app."""
CPUS_FOR_EACH_HTTP_THREAD = 4

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
    """How work reaches a pool."""

    validate: bool = False
    """Whether a network front calls its tools."""
    target: str | None = None
    """The app of a serve or tcp front."""
    app: Mapping[str, Any] | None = None
    """The options of that app, for the zygote."""
    front: str = ""


@dataclass(frozen=True, slots=True)
class JobsSpec:
    """A front that runs the jobs of a store. `core`: its options, as JSON for the core."""

    name: str
    url: str
    pool: str
    core: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Config:
    """A whole configuration, checked. `fronts`: by name, the JSON of the core's config, as a dict with its `kind`."""

    file: Path
    pools: tuple[PoolSpec, ...]
    fronts: Mapping[str, dict[str, Any]]
    jobs: tuple[JobsSpec, ...] = ()
    cron: tuple[CronSpec, ...] = ()
    control: Path | None = None
    development: bool = False
    """Development mode (`--reload`): if new code does not start, the old code is not kept."""

    @property
    def warnings(self) -> list[str]:
        of_pools = [f"pools.{pool.name}: {warning}" for pool in self.pools for warning in pool.warnings]
        return of_pools + [warning for entry in self.cron if (warning := self._unserved(entry)) is not None]

    def _unserved(self, entry: CronSpec) -> str | None:
        """Another process may take from its queue: only that can be told."""
        taken = {queue for front in self.jobs if front.url == entry.url for queue, _ in front.core["queues"]}
        queue = entry.values["queue"]
        if queue in taken:
            return None
        near = nearest(queue, taken)
        meant = f"; did you mean {near}?" if near else ""
        return (
            f"cron.{entry.name}.queue: no front here takes from queue {queue} of store {entry.store}, only from "
            f"{', '.join(sorted(taken))}; its jobs wait until another process takes from it{meant}"
        )


def load(
    path: str | os.PathLike[str] | None = None,
    *,
    settings: Iterable[str] = (),
    insecure: bool = False,
    development: bool = False,
    environ: Mapping[str, str] | None = None,
) -> Config:
    """Reads `path`, or the nearest config upward from the working folder, and what overrides it.

    `settings` are texts such as `pools.api.workers=4`; they win over variables (`CLUTCH_POOLS_API_WORKERS`), which
    win over the file. `development`: the code is being written, so that a pool has one worker where no number is given.
    Raises `ConfigError` with all problems.
    """
    file = Path(path) if path is not None else find()
    raw = read_file(file)
    return compose(raw, file, settings=settings, insecure=insecure, development=development, environ=environ)


def load_stores(file: Path) -> dict[str, str]:
    """Reads the URLs of the stores, by their names. What else the file has may be wrong. Raises `ConfigError`."""
    raw = {"stores": read_file(file).get("stores", {})}
    report = Report(str(file))
    variables = {name: value for name, value in os.environ.items() if name.startswith(variable_name("stores."))}
    merge_variables(raw, variables, dict(_places(raw)), report)
    stores = _stores(raw, file.resolve().parent, report)
    report.raise_if_any()
    return stores


def compose(
    raw: dict[str, Any],
    file: Path,
    *,
    settings: Iterable[str] = (),
    insecure: bool = False,
    development: bool = False,
    environ: Mapping[str, str] | None = None,
    sources: Mapping[str, str] | None = None,
) -> Config:
    """As `load`, of tables that were read, or made, already. `sources`: where the value at a place comes from."""
    environ = os.environ if environ is None else environ
    report = Report(str(file), dict(sources or {}))
    merge_variables(raw, environ, dict(_places(raw)), report)
    merge_settings(raw, settings, lambda place: _kind_at(place, _kinds(raw)), report)
    if insecure:
        _mark_insecure(raw.get("fronts"))
    if development:
        _default_to_one_worker(raw)
    config = dataclasses.replace(_config(raw, file, environ, report), development=development)
    report.raise_if_any()
    for pool in config.pools:
        pool.core["development"] = development
    return config


def resolve(name: str = "pool", *, validate: bool = False, folder: Path | None = None, **options: Any) -> PoolSpec:
    """A pool made in Python: the same options by keyword, nested as in TOML. Raises `ConfigError`.

    `validate`: a network front can reach it. `folder`: treat it as if a config in that folder described it.
    """
    report = Report()
    given = _read(POOL, {key: value for key, value in options.items() if value is not None}, "Pool", report)
    _check_name(name, "Pool.name", report)
    spec = _pool(name, given, "Pool", folder, Use(validate), os.environ, report)
    report.raise_if_any()
    return spec


def find(start: Path | None = None) -> Path:
    """The nearest `clutch.toml`, or pyproject.toml with `[tool.clutch]`, upward from `start`."""
    start = (start or Path.cwd()).resolve()
    for folder in (start, *start.parents):
        if (folder / FILE_NAME).is_file():
            return folder / FILE_NAME
        project = folder / "pyproject.toml"
        if project.is_file() and "clutch" in _keys(read_toml(project), "tool"):
            return project
    what = f"no {FILE_NAME} and no pyproject.toml with [tool.clutch], here or above; `clutch init` writes one"
    raise ConfigError(problems=[Problem(str(start), what)])


def _places(raw: Mapping[str, Any]) -> Iterator[tuple[str, Kind]]:
    """Every place that a variable may set: the options of the file's pools and of all fronts."""
    for option in TOP.options:
        yield option.name, option.kind
    sections = [(f"pools.{name}", POOL) for name in (*_keys(raw, "pools"), *_app_pools(raw))]
    sections += [(section.place, section) for section in FRONTS.values()]
    sections += [(f"stores.{name}", STORE) for name in _keys(raw, "stores")]
    sections += [(f"cron.{name}", CRON) for name in _keys(raw, "cron")]
    sections += [(f"fronts.{name}", FRONTS[kind]) for name, kind in _kinds(raw).items() if kind in FRONTS]
    for place, section in sections:
        for option in section.options:
            yield f"{place}.{option.name}", option.kind


def _keys(raw: Mapping[str, Any], place: str) -> tuple[str, ...]:
    table = raw.get(place)
    return tuple(table) if isinstance(table, dict) else ()


def _app_pools(raw: Mapping[str, Any]) -> Iterator[str]:
    """The pools that fronts with an app name; such a pool needs no table."""
    for front, kind in _kinds(raw).items():
        if kind in APPS:
            name = raw["fronts"][front].get("pool", _default_pool(front, kind))
            if isinstance(name, str):
                yield name


def _kinds(raw: Mapping[str, Any]) -> dict[str, str]:
    """The kind of each front, by name: its `kind`, or else its name."""
    tables = raw.get("fronts")
    fronts = tables.items() if isinstance(tables, dict) else ()
    return {name: str(table.get("kind", name)) for name, table in fronts if isinstance(table, dict)}


def _default_pool(front: str, kind: str) -> str:
    """A front that has a name of its own has a pool of that name."""
    default: str = FRONTS[kind].default("pool")
    return default if front == kind else front


def _kind_at(place: str, fronts: Mapping[str, str]) -> Kind | None:
    if (option := TOP.option(place)) is not None:
        return option.kind
    head, _, rest = place.partition(".")
    name, _, option_name = rest.partition(".")
    tables = {"pools": POOL, "stores": STORE, "cron": CRON, "fronts": FRONTS.get(fronts.get(name, name))}
    section = tables.get(head)
    option = section.option(option_name) if section else None
    return option.kind if option else None


def _mark_insecure(fronts: Any) -> None:
    for front in fronts.values() if isinstance(fronts, dict) else ():
        if isinstance(front, dict):
            front["insecure"] = True


def _default_to_one_worker(raw: dict[str, Any]) -> None:
    """A debugger has one terminal, and a reload starts as many workers as there are."""
    names = (*_keys(raw, "pools"), *_app_pools(raw))
    pools = raw.setdefault("pools", {}) if names else {}
    for name in names:
        if isinstance(pool := pools.setdefault(name, {}), dict):
            pool.setdefault("workers", 1)


# Checking: the nested dict becomes a Config.


def _config(raw: Mapping[str, Any], file: Path, environ: Mapping[str, str], report: Report) -> Config:
    for name in raw:
        if name not in TABLES and TOP.option(name) is None:
            report.unknown(name, "no such table", name, TABLES)
    top: dict[str, Any] = {}
    for option in TOP.options:
        if option.name in raw:
            _parse(option, raw[option.name], option.name, top, report)
    folder = file.resolve().parent
    fronts = {name: _front(name, value, folder, report) for name, value in _tables(raw, "fronts", report)}
    uses = _uses(fronts, report)
    tables = {name: {} for name in uses} | dict(_tables(raw, "pools", report))
    of_tools = Use(validate=any(values and FRONTS[values["kind"]].calls_tools for values in fronts.values()))
    pools = [
        _config_pool(name, table, folder, uses.get(name, of_tools), environ, report) for name, table in tables.items()
    ]
    if not tables and not raw.get("pools"):
        report.add("pools", "there is no pool", allowed="at least one [pools.NAME], or [fronts.serve] with an app")
    stores = _stores(raw, folder, report)
    jobs = {name: values for name, values in fronts.items() if values.get("kind") == "jobs"}
    cores = {name: front_core(values) for name, values in fronts.items() if values and name not in jobs}
    _check_distinct_binds(cores, report)
    specs = [_jobs(name, values, stores, list(tables), report) for name, values in jobs.items()]
    cron = tuple(_cron(name, value, stores, specs, report) for name, value in _tables(raw, "cron", report))
    return Config(file, tuple(pools), cores, tuple(specs), cron, _control(top.get("control"), folder))


def _control(given: str | None, folder: Path) -> Path | None:
    return None if given is None else Path(given) if given == CONTROL_OFF else folder / given


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


# Stores, and the fronts that run their jobs.


def _stores(raw: Mapping[str, Any], folder: Path, report: Report) -> dict[str, str]:
    return {name: _store(name, value, folder, report) for name, value in _tables(raw, "stores", report)}


def _store(name: str, raw: Mapping[str, Any], folder: Path, report: Report) -> str:
    """Its URL."""
    place = f"stores.{name}"
    url: str | None = _read(STORE, raw, place, report).get("url")
    if "url" not in raw:
        report.add(f"{place}.url", "is missing", allowed="sqlite:///jobs.db")
    return "" if url is None else under_folder(url, folder)


def _jobs(
    name: str, values: Mapping[str, Any], stores: Mapping[str, str], pools: list[str], report: Report
) -> JobsSpec:
    store = _one_of("store", stores, values["store"], f"fronts.{name}", report)
    pool = _one_of("pool", pools, values["pool"], f"fronts.{name}", report)
    return JobsSpec(name, stores.get(store, ""), pool, {**core_json(FRONTS["jobs"], values), "cron": []})


def _one_of(option: str, known: Iterable[str], given: str | None, place: str, report: Report) -> str:
    """What the option names, or the only one that there is."""
    names = list(known)
    if given is None and len(names) == 1:
        return names[0]
    allowed = ", ".join(names) or f"one of [{option}s.NAME], and there is none"
    if given is None:
        report.add(f"{place}.{option}", "is missing", allowed=allowed)
    elif given not in names:
        what = f"no such {option}"
        report.add(f"{place}.{option}", what, given=given, allowed=allowed, nearest=nearest(given, names))
    return given or ""


def _cron(
    name: str, raw: Mapping[str, Any], stores: Mapping[str, str], fronts: Iterable[JobsSpec], report: Report
) -> CronSpec:
    """Given to each front that runs the jobs of its store: they enqueue it."""
    place = f"cron.{name}"
    _check_name(name, place, report, "periodic jobs")
    given = _read(CRON, raw, place, report)
    store = _one_of("store", stores, given.get("store"), place, report)
    for option, other, allowed in (("tool", "tool", TEXT.allowed), ("schedule", "every", SCHEDULE.allowed)):
        if option not in raw and other not in raw:
            report.add(f"{place}.{option}", "is missing", allowed=allowed)
    entry = decide(name, given, store, stores.get(store, ""), report)
    enqueuing = [front for front in fronts if store in stores and front.url == entry.url]
    if store in stores and not enqueuing:
        report.add(place, "no front runs the jobs of its store", given=store, allowed="a [fronts.jobs] with that store")
    for front in enqueuing:
        front.core["cron"].append(entry.core)
    return entry


# What is particular to each front.


def _front(name: str, raw: Mapping[str, Any], folder: Path, report: Report) -> dict[str, Any]:
    """Its options, each decided; nothing of a front that there is not."""
    place = f"fronts.{name}"
    kind = raw.get("kind", name)
    if kind not in FRONTS:
        _unknown_kind(place, name, kind, report)
        return {}
    section = FRONTS[kind]
    given = _read(section, {option: value for option, value in raw.items() if option != "kind"}, place, report)
    values = {option.name: given.get(option.name, option.default_value(False)) for option in section.options}
    values["kind"] = kind
    if values.get("access_log") not in (None, "-"):
        values["access_log"] = str(folder / values["access_log"])
    if section.app is not None:
        values["pool"] = given.get("pool", _default_pool(name, kind))
        if section.app not in raw:
            report.add(f"{place}.{section.app}", "is missing", allowed=TARGET.allowed)
    _finish_front(place, values, folder, report)
    return values


def _unknown_kind(place: str, name: str, kind: Any, report: Report) -> None:
    known = ", ".join(sorted(FRONTS))
    if kind in LATER_FRONTS:
        report.add(place, "not in this version")
    elif kind == name:
        near = nearest(name, FRONTS)
        report.add(
            place, "no such front", allowed=f"{known}; under another name with kind = one of these", nearest=near
        )
    else:
        near = nearest(kind, FRONTS) if isinstance(kind, str) else None
        report.add(f"{place}.kind", "no such kind of front", given=_show(kind), allowed=known, nearest=near)


def _finish_front(place: str, values: dict[str, Any], folder: Path, report: Report) -> None:
    """Decides what depends on the folder or the machine, of the options that it has."""
    if "bind" not in values:
        return
    binds = values["bind"] if isinstance(values["bind"], tuple) else (values["bind"],)
    binds = tuple(bind.under(folder) for bind in binds)
    values["bind"] = binds if isinstance(values["bind"], tuple) else binds[0]
    if "threads" in values:
        values["threads"] = values["threads"] or max(1, limits.usable_cpus() // CPUS_FOR_EACH_HTTP_THREAD)
    if "tls.certificate" in values:
        _finish_tls(place, values, folder, report)
    if "token" in values:
        _finish_guard(place, binds, values, folder, report)


def _finish_guard(place: str, binds: Iterable[Any], values: dict[str, Any], folder: Path, report: Report) -> None:
    """Calls and figures are not for everybody; an app, which the user exposes on purpose, has none of these options."""
    _finish_tokens(place, values, folder, report)
    has_token = values["token"] is not None or values["token_file"] is not None
    has_tls = values.get("tls.certificate") is not None
    for bind in binds:
        # Where a socket listens that was handed over is seen when it is taken over.
        if not (bind.is_local or bind.descriptor is not None or has_token or has_tls or values["insecure"]):
            ways = "a token, TLS" if "tls.certificate" in values else "a token"
            allowed = f"a loopback address, a Unix socket, {ways}, or insecure = true"
            what = f"an address beyond loopback needs {ways.replace(',', ' or')}"
            report.add(f"{place}.bind", what, given=str(bind), allowed=allowed)
    if "*" in values.get("cors_origins", ()) and not has_token:
        what = "'*' needs a token: else any web page that somebody opens near this server may call its tools"
        report.add(f"{place}.cors_origins", what, given='"*"', allowed="a list of origins, or a token")


def _finish_tokens(place: str, values: dict[str, Any], folder: Path, report: Report) -> None:
    if values["token_file"] is None:
        return
    file = folder / values["token_file"]
    values["token_file"] = str(file)
    if values["token"] is not None:
        what = "token is also given: use one of the two"
        report.add(f"{place}.token_file", what, given=str(file), allowed="either token or token_file")
    wrong = why_unreadable(file)
    if wrong is not None:
        what = f"cannot be read: {wrong}"
        report.add(f"{place}.token_file", what, given=str(file), allowed="a file with one token a line")


def why_unreadable(file: Path) -> str | None:
    """Why the file cannot be read, or None. Does not wait for the writer of a pipe."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        return error.strerror
    try:
        return None if stat.S_ISREG(os.fstat(descriptor).st_mode) else "it is not a regular file"
    finally:
        os.close(descriptor)


def _finish_tls(place: str, values: dict[str, Any], folder: Path, report: Report) -> None:
    if values["tls.client_auth"] is None:
        values["tls.client_auth"] = "required" if values["tls.client_ca"] is not None else "none"
    asks_clients = "tls.client_auth" if values["tls.client_auth"] != "none" else None
    needs = (("tls.certificate", "tls.key"), ("tls.key", "tls.certificate"), ("tls.client_ca", asks_clients))
    for name, other in (*needs, ("tls.certificate", "tls.client_ca")):
        if values[name] is None and other is not None and values[other] is not None:
            report.add(f"{place}.{name}", f"is missing: {other} is given", allowed=FILE.allowed)
    for name in ("tls.certificate", "tls.key", "tls.client_ca"):
        if values[name] is not None:
            values[name] = str(folder / values[name])


def front_core(values: Mapping[str, Any]) -> dict[str, Any]:
    """The core's JSON of a front, from its decided options and kind."""
    core = {"kind": values["kind"], **core_json(FRONTS[values["kind"]], values)}
    if core.get("tls", {}).get("certificate", "") is None:
        core["tls"] = None
    return core


def _uses(fronts: Mapping[str, Mapping[str, Any]], report: Report) -> dict[str, Use]:
    """The app that each pool runs, by pool."""
    uses: dict[str, Use] = {}
    for name, values in fronts.items():
        if (kind := values.get("kind")) in APPS:
            app = {"kind": values.get("interface", kind), "factory": values.get("factory", False)}
            app |= {option: values[option] for option in ("root_path", "lifespan") if option in values}
            use = Use(target=values[APPS[kind]], app=app, front=name)
            if (other := uses.setdefault(values["pool"], use)) is not use:
                what = f"this pool runs the app of fronts.{other.front}"
                report.add(f"fronts.{name}.pool", what, given=values["pool"], allowed="a pool of its own")
    return uses


def _check_distinct_binds(fronts: Mapping[str, Mapping[str, Any]], report: Report) -> None:
    first_at: dict[str, str] = {}
    for name, front in fronts.items():
        binds = front.get("bind", [])
        for bind in [binds] if isinstance(binds, str) else binds:
            if bind in first_at:
                report.add(f"fronts.{name}.bind", f"fronts.{first_at[bind]} listens there too", given=bind)
            elif not bind.endswith(":0"):
                first_at[bind] = name


# Pools of a configuration.


def _config_pool(
    name: str,
    raw: Mapping[str, Any],
    folder: Path,
    use: Use,
    environ: Mapping[str, str],
    report: Report,
) -> PoolSpec:
    place = f"pools.{name}"
    _check_name(name, place, report)
    given = _read(POOL, raw, place, report)
    if use.app is not None:
        _check_own_target(given, place, use, report)
    elif "target" not in raw:
        report.add(f"{place}.target", "is missing", allowed=TARGET.allowed)
    return _pool(name, given, place, folder, use, environ, report)


def _check_own_target(given: dict[str, Any], place: str, use: Use, report: Report) -> None:
    own = given.setdefault("target", use.target)
    if use.target is not None and own != use.target:
        what = f"this pool runs {use.target}, the app of fronts.{use.front}"
        report.add(f"{place}.target", what, given=own, allowed="no target here, or another pool for that front")


def _check_name(name: str, place: str, report: Report, of: str = "a pool") -> None:
    try:
        POOL_NAME.parse(name)
    except ValueError:
        report.add(place, f"not a name for {of}", given=_show(name), allowed=POOL_NAME.allowed)


def _read(section: Section, raw: Mapping[str, Any], place: str, report: Report) -> dict[str, Any]:
    """Parse the given options of a section; report invalid ones and leave them out."""
    values = {}
    for name, value in _flat(section, raw, place, report):
        option = section.option(name)
        if option is None:
            shown = [option.name for option in section.options if not option.later]
            report.unknown(f"{place}.{name}", "no such option", OPTIONS_OF_PEERS.get(name, name), shown)
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
    except WrongFormat as wrong:
        report.add(place, str(wrong), given=_show(value), allowed=wrong.allowed)
    except ValueError:
        name = nearest(value, kind.names) if isinstance(value, str) else None
        given = "(not shown)" if option is TOKEN else _show(value)
        report.add(place, "invalid value", given=given, allowed=kind.allowed, nearest=name)


OPTIONS_OF_PEERS = {
    **dict.fromkeys(("n_jobs", "processes", "num_workers", "nprocs", "concurrency"), "workers"),
    **dict.fromkeys(("maxtasksperchild", "max_requests", "max_tasks"), "recycle.calls"),
    "timeout": "deadline",
}
"""Our option for the name that other pools and servers use."""


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


# Deciding: a pool's options become a PoolSpec.


def _pool(
    name: str,
    given: dict[str, Any],
    place: str,
    folder: Path | None,
    use: Use,
    environ: Mapping[str, str],
    report: Report,
) -> PoolSpec:
    from_python = folder is None
    values = {option.name: given.get(option.name, option.default_value(from_python)) for option in POOL.options}
    if use.app is not None:
        values["profile"] = given.get("profile", APP_PROFILE)
    python = _interpreter(values["python"], place, folder, report)
    cpus = limits.usable_cpus()
    values |= {key: given.get(key, default) for key, default in shape_defaults(values["profile"], python, cpus).items()}
    _check_shape(values, python, place, report)
    added, warnings = _blas(values, environ, cpus)
    values["env"] = added | values["env"]
    core = {"name": name, "python": python.path, "env": values["env"], **core_json(POOL, values)}
    core["workers_min"] = values["workers"].min
    core["launch"] |= _launch(core, folder, use) | {"profile_given": "profile" in given}
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


def _blas(values: Mapping[str, Any], environ: Mapping[str, str], cpus: int) -> tuple[dict[str, str], tuple[str, ...]]:
    """Thread counts for the BLAS family that nobody has set, and a warning where the user's own are too many."""
    runners = values["workers"].max * values["threads"]
    count = str(max(1, cpus // runners))
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
    """What the zygote is told. `sys_path`, `main` and `initializer` of a pool made in Python are added by it."""
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
