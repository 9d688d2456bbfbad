"""Fronts: their options, each decided, and the pools that run the apps of some."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from clutch.config.finish import Draft
from clutch.config.layers import Report, nearest
from clutch.config.options import FRONTS, core_json
from clutch.config.pools import Use
from clutch.config.tables import APPS, default_pool, read, show
from clutch.config.values import TARGET


def front(name: str, raw: Mapping[str, Any], folder: Path, report: Report) -> dict[str, Any]:
    """Returns its options, each decided, and its `kind`; nothing for a front that there is not."""
    place = f"fronts.{name}"
    kind = raw.get("kind", name)
    if not isinstance(kind, str) or kind not in FRONTS:
        _unknown_kind(place, name, kind, report)
        return {}
    section = FRONTS[kind]
    given = read(section, {option: value for option, value in raw.items() if option != "kind"}, place, report)
    values = {option.name: given.get(option.name, option.default_value(False)) for option in section.options}
    values["kind"] = kind
    if section.app is not None:
        values["pool"] = given.get("pool", default_pool(name, kind))
        if section.app not in raw:
            report.add(f"{place}.{section.app}", "is missing", allowed=TARGET.allowed)
    for step in section.finish:
        step(Draft(place, values, folder, report))
    return values


def _unknown_kind(place: str, name: str, kind: Any, report: Report) -> None:
    known = ", ".join(sorted(FRONTS))
    if kind == name:
        near = nearest(name, FRONTS)
        report.add(
            place, "no such front", allowed=f"{known}; under another name with kind = one of these", nearest=near
        )
    else:
        near = nearest(kind, FRONTS) if isinstance(kind, str) else None
        report.add(f"{place}.kind", "no such kind of front", given=show(kind), allowed=known, nearest=near)


def front_core(values: Mapping[str, Any]) -> dict[str, Any]:
    """The core's JSON of a front, from its decided options and kind."""
    core = {"kind": values["kind"], **core_json(FRONTS[values["kind"]], values)}
    connection = core.get("connection", {})
    if connection.get("tls", {}).get("certificate", "") is None:
        connection["tls"] = None
    return core


def uses_of_pools(fronts: Mapping[str, Mapping[str, Any]], report: Report) -> dict[str, Use]:
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


def check_reachable(
    fronts: Mapping[str, Mapping[str, Any]], pools: Iterable[str], uses: Mapping[str, Use], report: Report
) -> None:
    """Pools that a front lists have to have tools."""
    known = [pool for pool in pools if pool not in uses]
    for name, front in fronts.items():
        for pool in front.get("pools") or ():
            if pool not in known:
                what = "this pool runs an app, which has no tools" if pool in uses else "no such pool"
                near = None if pool in uses else nearest(pool, known)
                report.add(f"fronts.{name}.pools", what, given=pool, allowed=", ".join(known) or "none", nearest=near)


def calls_tools_of(fronts: Mapping[str, Mapping[str, Any]], pool: str) -> bool:
    """Returns whether clients of a front can call the tools of this pool."""
    return any(
        values and FRONTS[values["kind"]].calls_tools and (values.get("pools") is None or pool in values["pools"])
        for values in fronts.values()
    )


def check_distinct_binds(fronts: Mapping[str, Mapping[str, Any]], report: Report) -> None:
    first_at: dict[str, str] = {}
    for name, front in fronts.items():
        binds = front.get("bind", [])
        for bind in [binds] if isinstance(binds, str) else binds:
            if bind in first_at:
                report.add(f"fronts.{name}.bind", f"fronts.{first_at[bind]} listens there too", given=bind)
            elif not bind.endswith(":0"):
                first_at[bind] = name
