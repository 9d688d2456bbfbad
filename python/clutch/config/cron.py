"""Periodic jobs: an entry is checked, decided, and given to the fronts that enqueue its jobs.

Whether a schedule and its zone can be read is the core's business: see `_dispatcher/schedules.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from clutch.config.layers import Report
from clutch.config.options import CRON, core_json
from clutch.config.tables import check_name, one_of, read
from clutch.config.values import SCHEDULE, TEXT


@dataclass(frozen=True, slots=True)
class CronSpec:
    """An entry of periodic jobs. `core`: the JSON of the core's `EntryOptions`, as a dict."""

    name: str
    store: str
    """Name of the store in [stores]."""
    url: str
    values: Mapping[str, Any]
    core: dict[str, Any]

    @property
    def when(self) -> str:
        """The schedule for people: `0 3 * * * Europe/Berlin`, or `every 300 s`."""
        if self.values["every"] is not None:
            return f"every {self.values['every']:g} s"
        return f"{self.values['schedule']} {self.values['zone'] or 'UTC'}"


def entry(
    name: str, raw: Mapping[str, Any], stores: Mapping[str, str], fronts: Iterable[Mapping[str, Any]], report: Report
) -> CronSpec:
    """Decides an entry, and gives it to each front that runs the jobs of its store: they enqueue it."""
    place = f"cron.{name}"
    check_name(name, place, report, "periodic jobs")
    given = read(CRON, raw, place, report)
    store = one_of("store", stores, given.get("store"), place, report)
    for option, other, allowed in (("tool", "tool", TEXT.allowed), ("schedule", "every", SCHEDULE.allowed)):
        if option not in raw and other not in raw:
            report.add(f"{place}.{option}", "is missing", allowed=allowed)
    decided = _decide(name, given, store, stores.get(store, ""), report)
    enqueuing = [front for front in fronts if store in stores and front["store"] == decided.url]
    if store in stores and not enqueuing:
        report.add(place, "no front runs the jobs of its store", given=store, allowed="a [fronts.jobs] with that store")
    for front in enqueuing:
        front["cron"].append(decided.core)
    return decided


def _decide(name: str, given: Mapping[str, Any], store: str, url: str, report: Report) -> CronSpec:
    place = f"cron.{name}"
    values = {option.name: given.get(option.name, option.default_value(False)) for option in CRON.options}
    schedule, every, zone = values["schedule"], values["every"], values["zone"]
    if schedule is not None and every is not None:
        report.add(f"{place}.every", "schedule is also given: use one of the two", given=f"{every:g} s")
    if every is not None and zone is not None:
        report.add(f"{place}.zone", "`every` counts from 1970 UTC, in no zone", given=repr(zone), allowed="a schedule")
    core = {"name": name, **core_json(CRON, {**values, "zone": zone or "UTC"})}
    core["job"]["arguments"] = {"args": values["args"], "kwargs": values["kwargs"]}
    return CronSpec(name, store, url, values, core)
