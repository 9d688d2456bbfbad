"""Stores, and the fronts that run their jobs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clutch.celery import NODE
from clutch.config.fronts import front_core
from clutch.config.layers import Report
from clutch.config.options import STORE
from clutch.config.pools import PoolSpec
from clutch.config.tables import one_of, read, tables_in
from clutch.config.values import under_folder


def stores_of(raw: Mapping[str, Any], folder: Path, report: Report) -> dict[str, str]:
    """Returns the URLs of the stores, by name."""
    return {name: _url(name, value, folder, report) for name, value in tables_in(raw, "stores", report)}


def _url(name: str, raw: Mapping[str, Any], folder: Path, report: Report) -> str:
    place = f"stores.{name}"
    url: str | None = read(STORE, raw, place, report).get("url")
    if "url" not in raw:
        report.add(f"{place}.url", "is missing", allowed="sqlite:///jobs.db")
    return "" if url is None else under_folder(url, folder)


def runs_jobs(values: Mapping[str, Any]) -> bool:
    """Returns whether these are the options, or the core's JSON, of a front whose work comes out of a store."""
    return "store" in values


def jobs_core(
    name: str, values: Mapping[str, Any], stores: Mapping[str, str], pools: list[str], report: Report
) -> dict[str, Any]:
    """Returns the core's JSON of a front that runs jobs: its `store` is a URL, its `cron` is empty yet."""
    store = one_of("store", stores, values["store"], f"fronts.{name}", report)
    pool = one_of("pool", pools, values["pool"], f"fronts.{name}", report)
    return {**front_core(values), "store": stores.get(store, ""), "pool": pool, "cron": []}


def runs_celery(values: Mapping[str, Any]) -> bool:
    """Returns whether these are the options, or the core's JSON, of a front that runs the tasks of a Celery app."""
    return values.get("kind") == "celery"


def celery_core(name: str, values: Mapping[str, Any], pools: Mapping[str, PoolSpec], report: Report) -> dict[str, Any]:
    """Returns what the core's JSON of a front of jobs is made of, once its app has said where they come from. The
    workers of its pool are told the name of the node."""
    place = f"fronts.{name}"
    core = {**front_core(values), "pool": one_of("pool", pools, values["pool"], place, report)}
    core["node"] = values["node"] or ("" if name == values["kind"] else name)
    env = pools[core["pool"]].core["env"] if core["pool"] in pools else {}
    if NODE in env:
        report.add(f"{place}.pool", "it is the pool of another node", given=core["pool"], allowed="a pool of its own")
    env[NODE] = core["node"]
    return core
