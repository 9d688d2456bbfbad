"""A setting, written into a configuration; what else is there, and comments on lines of their own, stay as they are."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clutch.errors import ConfigError
from clutch.lab.setting import Setting
from clutch.lab.work import App, Calls, Handler, JobRun, Work

OURS = ("profile", "workers", "threads", "tasks")
FRONTS = {App: ("serve", "app", "web"), Handler: ("tcp", "handler", "tcp")}
"""Of work that is served: the kind of its front, the option that names it, and the pool that runs it unless said."""
POOL = "main"


@dataclass(frozen=True)
class Place:
    """Where a setting goes. `target`: of the pool, if no front names what it runs. `front`: a kind, and its options."""

    pool: str
    target: str | None = None
    front: tuple[str, dict[str, str]] | None = None

    def text(self, setting: Setting) -> str:
        """All of it, as in a new file."""
        front = [] if self.front is None else ["", f"[fronts.{self.front[0]}]", *map(line_of, self.front[1].items())]
        return "\n".join([f"[pools.{self.pool}]", *self.lines(setting, {}), *front])

    def lines(self, setting: Setting, kept: dict[str, Any]) -> list[str]:
        """Of the pool, what its section is to have beside what is kept."""
        named = {} if self.target is None or "target" in kept else {"target": self.target}
        return list(map(line_of, {**named, **setting.options()}.items()))

    def needs_front(self, config: dict[str, Any]) -> bool:
        """Whether the configuration has no front for this pool yet."""
        return self.front is not None and not any(pool == self.pool for _, pool in fronts_of(config))


def fronts_of(config: dict[str, Any]) -> Iterator[tuple[str | None, str]]:
    """Of each front that runs something: what, and where. One with a name of its own has a pool of that name."""
    for name, one in config.get("fronts", {}).items():
        kind = one.get("kind", name)
        for of_kind, option, usual in FRONTS.values():
            if kind == of_kind:
                yield one.get(option), one.get("pool", usual if name == kind else name)


def settled(place: Place, named: bool, config: dict[str, Any]) -> Place:
    """Where it goes in a configuration that is there: into the pool that runs the same already, unless one is named.
    Raises ConfigError where that pool runs something else."""
    if place.front is not None:
        target = next(iter(place.front[1].values()))
        runs = [pool for what, pool in fronts_of(config) if what == target]
        others = [str(what) for what, pool in fronts_of(config) if pool == place.pool and what != target]
        if runs and not named:
            kind, values = place.front
            return Place(runs[0], None, (kind, {**values, "pool": runs[0]}))
    else:
        pool = config.get("pools", {}).get(place.pool, {})
        others = [pool["target"]] if pool.get("target", place.target) != place.target else []
    if others:
        raise ConfigError(f"pool {place.pool} runs {others[0]} already: name another with --pool")
    return place


def line_of(option: tuple[str, Any]) -> str:
    return f"{option[0]} = {json.dumps(option[1])}"


def place_of(work: Work, pool: str | None) -> Place:
    """Of the pool that is named, or else the one that such work has by default."""
    if isinstance(work, App | Handler):
        kind, option, usual = FRONTS[type(work)]
        return Place(pool or usual, None, (kind, {option: work.target, "pool": pool or usual}))
    assert isinstance(work, Calls | JobRun)
    return Place(pool or POOL, work.module)


def place_in(path: Path, work: Work, pool: str | None) -> Place:
    """Where the setting of this work goes in a file, which may not be there. Raises ConfigError."""
    _, before = text_of(path)
    if wanted(before, Place(POOL), Setting("process", 1)) is None:
        raise ConfigError(f"{path} has pools or fronts in a form that is not understood here")
    return settled(place_of(work, pool), pool is not None, before)


def text_of(path: Path) -> tuple[str, dict[str, Any]]:
    """The text of a file, and what it says; both empty where it is not there. Raises ConfigError."""
    if not path.exists():
        return "", {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            text = file.read()
        return text, tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None


def write(path: Path, place: Place, setting: Setting) -> None:
    """Make the setting that of a pool in this file, which is made if it is not there; what the pool runs is added where
    the file does not say it yet. Raises ConfigError; the file is as it was, then."""
    text, before = text_of(path)
    by_hand = f"write there by hand:\n{place.text(setting)}"
    expected = wanted(before, place, setting)
    new = None if expected is None else written(text, before, place, setting)
    if new is None or read(new) != expected:
        raise ConfigError(f"{path} has pool {place.pool} in a form that is not understood here; {by_hand}")
    # Whole or not at all; where it is a link, what it leads to.
    at = path.resolve()
    draft = at.with_name(f".{at.name}.{os.getpid()}")
    try:
        with draft.open("x", newline="", encoding="utf-8") as file:
            file.write(new)
        if at.exists():
            draft.chmod(at.stat().st_mode & 0o777)
        draft.replace(at)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise ConfigError(f"{path} cannot be written: {error}; {by_hand}") from None


def read(text: str) -> Any:
    try:
        return tomllib.loads(text)
    except ValueError:
        return None


def wanted(before: dict[str, Any], place: Place, setting: Setting) -> Any:
    """The configuration with the setting in it; None where pools or fronts are no tables."""
    pools, fronts = before.get("pools", {}), before.get("fronts", {})
    main = pools.get(place.pool, {}) if isinstance(pools, dict) else None
    if (
        not isinstance(main, dict)
        or not isinstance(fronts, dict)
        or not all(isinstance(f, dict) for f in fronts.values())
    ):
        return None
    kept = {name: value for name, value in main.items() if name not in OURS}
    target = {} if place.target is None or "target" in kept else {"target": place.target}
    config = {**before, "pools": {**pools, place.pool: {**kept, **target, **setting.options()}}}
    if place.front is not None and place.needs_front(before):
        config["fronts"] = {**fronts, place.front[0]: place.front[1]}
    return config


def written(text: str, before: dict[str, Any], place: Place, setting: Setting) -> str:
    """The text with the lines of the setting below `[pools.NAME]`."""
    end_of_line = "\r\n" if text.count("\r\n") * 2 > text.count("\n") else "\n"
    lines = text.splitlines()
    head = f"[pools.{place.pool}]"
    at = next((nr for nr, line in enumerate(lines) if line.partition("#")[0].strip() == head), None)
    ours = place.lines(setting, before.get("pools", {}).get(place.pool, {}))
    if at is None:
        lines += [*([""] if lines else []), head, *ours]
    else:
        end = next((nr for nr in range(at + 1, len(lines)) if lines[nr].lstrip().startswith("[")), len(lines))
        is_ours = [line.partition("=")[0].strip() in OURS for line in lines[at + 1 : end]]
        first = is_ours.index(True) if True in is_ours else 0
        kept = [line for line, drops in zip(lines[at + 1 : end], is_ours, strict=True) if not drops]
        lines[at + 1 : end] = [*kept[:first], *ours, *kept[first:]]
    if place.front is not None and place.needs_front(before):
        kind, values = place.front
        lines += ["", f"[fronts.{kind}]", *map(line_of, values.items())]
    return end_of_line.join([*lines, ""])
