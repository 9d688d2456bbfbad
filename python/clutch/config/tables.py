"""Tables of a configuration: the kinds that there are, the section that each follows, and their values, parsed.

A new kind of table is a row of `TABLES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from clutch.config.layers import Report, nearest, variable_name
from clutch.config.log_format import WrongFormat
from clutch.config.options import CRON, FRONTS, POOL, STORE, TOKEN, TOP, Option, Section
from clutch.config.values import POOL_NAME, Kind

APPS = {kind: section.app for kind, section in FRONTS.items() if section.app is not None}
"""Kinds of fronts that run an app of the user's, and the option that names it."""

OPTIONS_OF_PEERS = {
    **dict.fromkeys(("n_jobs", "processes", "num_workers", "nprocs", "concurrency"), "workers"),
    **dict.fromkeys(("maxtasksperchild", "max_requests", "max_tasks"), "recycle.calls"),
    "timeout": "deadline",
}
"""Our option for the name that other pools and servers use."""


@dataclass(frozen=True, slots=True)
class Table:
    """Tables of one kind, `[pools.NAME]`. A table that is not there may have variables all the same."""

    section: Callable[[Mapping[str, Any], str], Section | None]
    """The section of a table, from the whole configuration and its name; None for a front of an unknown kind."""
    names: Callable[[Mapping[str, Any]], Iterable[str]]
    """The tables that variables may set options of."""


def keys(raw: Mapping[str, Any], place: str) -> tuple[str, ...]:
    table = raw.get(place)
    return tuple(table) if isinstance(table, dict) else ()


def kinds_of_fronts(raw: Mapping[str, Any]) -> dict[str, str]:
    """The kind of each front, by name: its `kind`, or else its name."""
    tables = raw.get("fronts")
    fronts = tables.items() if isinstance(tables, dict) else ()
    return {name: str(table.get("kind", name)) for name, table in fronts if isinstance(table, dict)}


def default_pool(front: str, kind: str) -> str:
    """A front that has a name of its own has a pool of that name."""
    default: str = FRONTS[kind].default("pool")
    return default if front == kind else front


def app_pools(raw: Mapping[str, Any]) -> Iterator[str]:
    """The pools that fronts with an app name; such a pool needs no table."""
    for front, kind in kinds_of_fronts(raw).items():
        if kind in APPS:
            name = raw["fronts"][front].get("pool", default_pool(front, kind))
            if isinstance(name, str):
                yield name


TABLES = {
    "pools": Table(lambda _raw, _name: POOL, lambda raw: (*keys(raw, "pools"), *app_pools(raw))),
    "fronts": Table(
        lambda raw, name: FRONTS.get(kinds_of_fronts(raw).get(name, name)), lambda raw: (*FRONTS, *keys(raw, "fronts"))
    ),
    "stores": Table(lambda _raw, _name: STORE, lambda raw: keys(raw, "stores")),
    "cron": Table(lambda _raw, _name: CRON, lambda raw: keys(raw, "cron")),
}

PREFIXES = tuple(variable_name(place) for place in (*(f"{table}." for table in TABLES), *(o.name for o in TOP.options)))
"""Beginnings of the variables that are options, or misspelt ones."""


def places(raw: Mapping[str, Any]) -> Iterator[tuple[str, Kind]]:
    """Every place that a variable may set: the options of the file's tables and of all kinds of fronts."""
    for option in TOP.options:
        yield option.name, option.kind
    for place, table in TABLES.items():
        for name in table.names(raw):
            section = table.section(raw, name)
            for option in section.options if section else ():
                yield f"{place}.{name}.{option.name}", option.kind


def kind_at(place: str, raw: Mapping[str, Any]) -> Kind | None:
    if (option := TOP.option(place)) is not None:
        return option.kind
    head, _, rest = place.partition(".")
    name, _, option_name = rest.partition(".")
    table = TABLES.get(head)
    section = table.section(raw, name) if table else None
    option = section.option(option_name) if section else None
    return option.kind if option else None


def tables_in(raw: Mapping[str, Any], place: str, report: Report) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The tables under `place`, those that are not tables being reported."""
    outer = raw.get(place, {})
    if not isinstance(outer, dict):
        report.add(place, "is not a table", given=show(outer))
        return
    for name, value in outer.items():
        if isinstance(value, dict):
            yield name, value
        else:
            report.add(f"{place}.{name}", "is not a table", given=show(value), allowed=f"[{place}.{name}]")


def read_top(raw: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """Parses the options that are in no table, and reports tables that there are not."""
    top: dict[str, Any] = {}
    for name, value in raw.items():
        if (option := TOP.option(name)) is not None:
            _parse(option, value, name, top, report)
        elif name not in TABLES:
            report.unknown(name, "no such table or option", name, (*TABLES, *(option.name for option in TOP.options)))
    return top


def read(section: Section, raw: Mapping[str, Any], place: str, report: Report) -> dict[str, Any]:
    """Parses the given options of a section; reports invalid ones and leaves them out."""
    values: dict[str, Any] = {}
    for name, value in _flat(section, raw, place, report):
        option = section.option(name)
        if option is None:
            shown = [option.name for option in section.options]
            report.unknown(f"{place}.{name}", "no such option", OPTIONS_OF_PEERS.get(name, name), shown)
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
            report.add(f"{place}.{name}", "is not a table", given=show(value), allowed=", ".join(inner))


def _parse(option: Option, value: Any, place: str, values: dict[str, Any], report: Report) -> None:
    kind = option.kind
    try:
        values[option.name] = kind.parse(value)
    except WrongFormat as wrong:
        report.add(place, str(wrong), given=show(value), allowed=wrong.allowed)
    except ValueError:
        name = nearest(value, kind.names) if isinstance(value, str) else None
        given = "(not shown)" if option is TOKEN else show(value)
        report.add(place, "invalid value", given=given, allowed=kind.allowed, nearest=name)


def check_name(name: str, place: str, report: Report, of: str = "a pool") -> None:
    try:
        POOL_NAME.parse(name)
    except ValueError:
        report.add(place, f"not a name for {of}", given=show(name), allowed=POOL_NAME.allowed)


def one_of(option: str, known: Iterable[str], given: str | None, place: str, report: Report) -> str:
    """Returns what the option names, or the only one that there is."""
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


def show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
