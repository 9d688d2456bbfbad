"""Entries of periodic jobs: what is decided of each beyond its single options.

Whether a schedule and its zone can be read is the core's business: see `_dispatcher/schedules.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clutch.config.layers import Report
from clutch.config.options import CRON, core_json
from clutch.config.values import SIDEKIQ


@dataclass(frozen=True, slots=True)
class CronSpec:
    """An entry of periodic jobs. `core`: the JSON of the core's `EntryOptions`, as a dict."""

    name: str
    store: str
    """Its name in [stores]."""
    url: str
    values: Mapping[str, Any]
    core: dict[str, Any]

    @property
    def when(self) -> str:
        """As people read it: `0 3 * * * Europe/Berlin`, or `every 300 s`."""
        if self.values["every"] is not None:
            return f"every {self.values['every']:g} s"
        return f"{self.values['schedule']} {self.values['zone'] or 'UTC'}"


def decide(name: str, given: Mapping[str, Any], store: str, url: str, report: Report) -> CronSpec:
    """From the options that were given, and the store that they, or there being no other, name."""
    place = f"cron.{name}"
    values = {option.name: given.get(option.name, option.default_value(False)) for option in CRON.options}
    schedule, every, zone = values["schedule"], values["every"], values["zone"]
    if schedule is not None and every is not None:
        report.add(f"{place}.every", "schedule is also given: use one of the two", given=f"{every:g} s")
    if every is not None and zone is not None:
        report.add(f"{place}.zone", "`every` counts from 1970 UTC, in no zone", given=repr(zone), allowed="a schedule")
    if url.startswith(SIDEKIQ):
        what = "the format of Sidekiq has no place for periodic jobs"
        report.add(f"{place}.store", what, given=store, allowed="a store on sqlite:// or redis://")
    core = {"name": name, **core_json(CRON, {**values, "zone": zone or "UTC"})}
    core["job"]["arguments"] = {"args": values["args"], "kwargs": values["kwargs"]}
    return CronSpec(name, store, url, values, core)
