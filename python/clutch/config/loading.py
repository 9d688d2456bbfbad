"""A configuration: found, read, merged from its layers, and checked as a whole."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clutch.config.cron import CronSpec, entry
from clutch.config.fronts import calls_tools_of, check_distinct_binds, check_reachable, front, front_core, uses_of_pools
from clutch.config.layers import Report, merge_settings, merge_variables, nearest, read_file, read_toml, variable_name
from clutch.config.options import CONTROL_OFF
from clutch.config.pools import PoolSpec, Surroundings, Use, pool_of_config
from clutch.config.stores import celery_core, jobs_core, runs_celery, runs_jobs, stores_of
from clutch.config.tables import PREFIXES, app_pools, keys, kind_at, places, read_top, tables_in
from clutch.errors import ConfigError, Problem

FILE_NAME = "clutch.toml"


@dataclass(frozen=True, slots=True)
class Config:
    """A whole configuration, checked. `fronts`: by name, the JSON of the core's config, as a dict with its `kind`."""

    file: Path
    pools: tuple[PoolSpec, ...]
    fronts: Mapping[str, dict[str, Any]]
    cron: tuple[CronSpec, ...] = ()
    control: Path | None = None
    development: bool = False
    """Development mode (`--reload`): if new code does not start, the old code is not kept."""

    @property
    def jobs(self) -> dict[str, dict[str, Any]]:
        """The fronts whose work comes out of a store: `store` is its URL."""
        return {name: core for name, core in self.fronts.items() if runs_jobs(core)}

    @property
    def celery(self) -> dict[str, dict[str, Any]]:
        """The fronts that run the tasks of a Celery app; those whose app has said what it is are fronts of jobs."""
        return {name: core for name, core in self.fronts.items() if runs_celery(core)}

    def queues_of(self, pool: str) -> list[str]:
        """Returns the queues from which its fronts take jobs."""
        return [queue for core in self.jobs.values() if core["pool"] == pool for queue, _ in core["queues"]]

    @property
    def warnings(self) -> list[str]:
        of_pools = [f"pools.{pool.name}: {warning}" for pool in self.pools for warning in pool.warnings]
        return of_pools + [warning for entry in self.cron if (warning := self._unserved(entry)) is not None]

    def _unserved(self, entry: CronSpec) -> str | None:
        """Another process may take from its queue: only that can be told."""
        taken = {queue for front in self.jobs.values() if front["store"] == entry.url for queue, _ in front["queues"]}
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
    merge_variables(raw, variables, dict(places(raw)), PREFIXES, report)
    stores = stores_of(raw, file.resolve().parent, report)
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
    """Composes a configuration from tables, as `load`. `sources`: origin of the value at a place."""
    environ = os.environ if environ is None else environ
    report = Report(str(file), dict(sources or {}))
    merge_variables(raw, environ, dict(places(raw)), PREFIXES, report)
    merge_settings(raw, settings, lambda place: kind_at(place, raw), report)
    if insecure:
        _mark_insecure(raw.get("fronts"))
    if development:
        _default_to_one_worker(raw)
    config = dataclasses.replace(_check(raw, file, environ, report), development=development)
    report.raise_if_any()
    for pool in config.pools:
        pool.core.update(development=development, takes_turns=False)
        pool.core["launch"]["queues"] = config.queues_of(pool.name)
    return config


def find(start: Path | None = None) -> Path:
    """The nearest `clutch.toml`, or pyproject.toml with `[tool.clutch]`, upward from `start`."""
    start = (start or Path.cwd()).resolve()
    for folder in (start, *start.parents):
        if (folder / FILE_NAME).is_file():
            return folder / FILE_NAME
        project = folder / "pyproject.toml"
        if project.is_file() and "clutch" in keys(read_toml(project), "tool"):
            return project
    what = f"no {FILE_NAME} and no pyproject.toml with [tool.clutch], here or above; `clutch init` writes one"
    raise ConfigError(problems=[Problem(str(start), what)])


def _mark_insecure(fronts: Any) -> None:
    for table in fronts.values() if isinstance(fronts, dict) else ():
        if isinstance(table, dict):
            table["insecure"] = True


def _default_to_one_worker(raw: dict[str, Any]) -> None:
    """A debugger has one terminal, and a reload starts as many workers as there are."""
    names = (*keys(raw, "pools"), *app_pools(raw))
    pools = raw.setdefault("pools", {}) if names else {}
    for name in names:
        if isinstance(pool := pools.setdefault(name, {}), dict):
            pool.setdefault("workers", 1)


def _check(raw: Mapping[str, Any], file: Path, environ: Mapping[str, str], report: Report) -> Config:
    """Makes a Config of the merged tables; reports all that is wrong with them."""
    top, folder = read_top(raw, report), file.resolve().parent
    fronts = {name: front(name, value, folder, report) for name, value in tables_in(raw, "fronts", report)}
    uses = uses_of_pools(fronts, report)
    tables = {name: {} for name in uses} | dict(tables_in(raw, "pools", report))
    check_reachable(fronts, tables, uses, report)
    around = Surroundings(folder, environ, report)
    pools = [
        pool_of_config(name, table, uses.get(name) or Use(validate=calls_tools_of(fronts, name)), around)
        for name, table in tables.items()
    ]
    if not tables and not raw.get("pools"):
        report.add("pools", "there is no pool", allowed="at least one [pools.NAME], or [fronts.serve] with an app")
    stores = stores_of(raw, folder, report)
    cores = {
        name: _front_core(name, values, stores, {pool.name: pool for pool in pools}, report)
        for name, values in fronts.items()
        if values
    }
    check_distinct_binds(cores, report)
    config = Config(file, tuple(pools), cores, (), _control(top.get("control"), folder))
    jobs = config.jobs.values()
    cron = tuple(entry(name, value, stores, jobs, report) for name, value in tables_in(raw, "cron", report))
    return dataclasses.replace(config, cron=cron)


def _front_core(
    name: str, values: Mapping[str, Any], stores: Mapping[str, str], pools: Mapping[str, PoolSpec], report: Report
) -> dict[str, Any]:
    if runs_jobs(values):
        return jobs_core(name, values, stores, list(pools), report)
    return celery_core(name, values, pools, report) if runs_celery(values) else front_core(values)


def _control(given: str | None, folder: Path) -> Path | None:
    return None if given is None else Path(given) if given == CONTROL_OFF else folder / given
