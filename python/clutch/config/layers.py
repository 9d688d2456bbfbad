"""The layers of a configuration: a file, then variables, then settings from the command line, merged to one dict.

Knows how each is written and where each value came from; what options there are is the business of options.py.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clutch.config.values import TEXT, Kind
from clutch.errors import ConfigError, Problem


@dataclass(slots=True)
class Report:
    """Collects problems, and the source of each value."""

    source: str | None = None
    sources: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def add(self, place: str, what: str, **more: str | None) -> None:
        self.problems.append(Problem(place, what, source=self.sources.get(place, self.source), **more))

    def unknown(self, place: str, what: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        self.add(place, what, allowed=", ".join(names), nearest=nearest(name, names))

    def raise_if_any(self) -> None:
        if self.problems:
            raise ConfigError(problems=self.problems)


def nearest(name: str, known: Iterable[str]) -> str | None:
    return next(iter(difflib.get_close_matches(name, list(known), 1, 0.6)), None)


def read_file(file: Path) -> dict[str, Any]:
    """The tables of `clutch.toml`, or those under `[tool.clutch]` of a pyproject.toml."""
    raw = read_toml(file)
    if file.name != "pyproject.toml":
        return raw
    table = raw.get("tool", {}).get("clutch")
    if not isinstance(table, dict):
        raise ConfigError(problems=[Problem(str(file), "has no [tool.clutch]")])
    return table


def read_toml(file: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(problems=[Problem(str(file), f"cannot be read: {error.strerror}")]) from error
    except ValueError as error:  # not TOML, or not UTF-8
        raise ConfigError(problems=[Problem(str(file), f"is not TOML: {error}")]) from error


def variable_name(place: str) -> str:
    """`pools.api.queue.limit` → `CLUTCH_POOLS_API_QUEUE_LIMIT`."""
    return "CLUTCH_" + re.sub(r"[.-]", "_", place).upper()


def merge_variables(
    raw: dict[str, Any],
    environ: Mapping[str, str],
    places: Mapping[str, Kind],
    prefixes: tuple[str, ...],
    report: Report,
) -> None:
    """Puts each variable at its place; reports unknown ones with one of the prefixes."""
    place_of = {variable_name(place): place for place in places}
    for variable in sorted(environ):
        if not variable.startswith(prefixes):
            continue
        if variable in place_of:
            place = place_of[variable]
            _put(raw, place, places[place].read_text(environ[variable]), variable, report)
        else:
            report.sources[variable] = "environment"
            report.add(variable, "no such option", nearest=nearest(variable, place_of))


def merge_settings(
    raw: dict[str, Any], settings: Iterable[str], kind_at: Callable[[str], Kind | None], report: Report
) -> None:
    """Puts each `PLACE=VALUE` at its place. Unknown places are reported by the check of the whole."""
    for setting in settings:
        place, equals, text = setting.partition("=")
        place = place.strip()
        if equals and place:
            kind = kind_at(place) or TEXT
            _put(raw, place, kind.read_text(text), f"--set {setting}", report)
        else:
            report.sources[setting] = "--set"
            report.add(setting, "is not a setting", allowed="PLACE=VALUE, such as pools.api.workers=4")


def _put(raw: dict[str, Any], place: str, value: Any, source: str, report: Report) -> None:
    *folders, last = place.split(".")
    table = raw
    for name in folders:
        inner = table.setdefault(name, {})
        if not isinstance(inner, dict):
            inner = table[name] = {}
        table = inner
    table[last] = value
    report.sources[place] = source
