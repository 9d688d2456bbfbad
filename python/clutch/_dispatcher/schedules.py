"""When periodic jobs are due next, and what is wrong with those that never are: as the core reads their schedules."""

from __future__ import annotations

import json
import time
import zoneinfo
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from clutch.config.layers import nearest
from clutch.config.options import CRON
from clutch.config.values import without_password
from clutch.errors import ConfigError, Problem

if TYPE_CHECKING:
    from clutch.config import Config
    from clutch.config.cron import CronSpec


NO_TICKS = "this store has no place for periodic jobs"


def next_ticks(entries: Iterable[CronSpec]) -> list[tuple[CronSpec, datetime]]:
    """Returns each entry with its next tick, in its time zone. Raises `ConfigError` with all that can never be used."""
    from clutch import _core

    now_ms = round(time.time() * 1000)
    ticks, problems = [], []
    for entry in entries:
        try:
            if _has_no_ticks(entry.url):
                given, allowed = without_password(entry.url), "a store on sqlite:// or redis://"
                problems.append(Problem(f"cron.{entry.name}.store", NO_TICKS, given=given, allowed=allowed))
            ticks.append((entry, datetime.fromisoformat(_core.next_tick(json.dumps(entry.core), now_ms))))
        except ValueError as error:
            problems.append(problem_of(entry, *error.args))
    if problems:
        raise ConfigError(problems=problems)
    return ticks


def unknown_tools(config: Config, pool: str, tools: Collection[str] | None) -> Iterator[str]:
    """Warnings of jobs that the pool is to run and whose tools it does not have. None: only its workers know them."""
    if tools is None:
        return
    if not tools:
        fronts = [name for name, front in config.jobs.items() if front["pool"] == pool]
        advice = f"its pool {pool} has no tool, so every job waits, for a day at most; mark functions with @clutch.tool"
        yield from (f"front {name}: {advice}" for name in fronts)
        return
    for entry in config.cron:
        tool, queue = entry.values["tool"], entry.values["queue"]
        takes = any(
            front["pool"] == pool and front["store"] == entry.url and queue in dict(front["queues"])
            for front in config.jobs.values()
        )
        if takes and tool not in tools:
            near = nearest(tool, tools)
            meant = f"; did you mean {near}?" if near else ""
            yield f"cron.{entry.name}.tool: pool {pool} has no tool {tool}, so its jobs wait, for a day at most{meant}"


def _has_no_ticks(url: str) -> bool:
    from clutch import _core

    try:
        return not _core.JobStore.offers(url)["ticks"]
    except ValueError:  # raised again when the store is opened
        return False


def problem_of(entry: CronSpec, option: str, why: str) -> Problem:
    place = f"cron.{entry.name}"
    known = CRON.option(option)
    if known is None:
        return Problem(place, why)
    given = entry.values[option]
    near = nearest(given, zoneinfo.available_timezones()) if option == "zone" else None
    return Problem(f"{place}.{option}", why, given=repr(given), allowed=known.kind.allowed, nearest=near)
