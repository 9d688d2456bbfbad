"""Stores, and the fronts that run their jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clutch.config.layers import Report
from clutch.config.options import FRONTS, STORE, core_json
from clutch.config.tables import one_of, read, tables_in
from clutch.config.values import under_folder


@dataclass(frozen=True, slots=True)
class JobsSpec:
    """A front that runs the jobs of a store. `core`: its options, as JSON for the core."""

    name: str
    url: str
    pool: str
    core: dict[str, Any]


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
    """Returns whether these are the options of a front whose work comes out of a store."""
    return "store" in values


def jobs_front(
    name: str, values: Mapping[str, Any], stores: Mapping[str, str], pools: list[str], report: Report
) -> JobsSpec:
    store = one_of("store", stores, values["store"], f"fronts.{name}", report)
    pool = one_of("pool", pools, values["pool"], f"fronts.{name}", report)
    return JobsSpec(name, stores.get(store, ""), pool, {**core_json(FRONTS[values["kind"]], values), "cron": []})
