"""A setting, written into a configuration without touching what else is there."""

from __future__ import annotations

import tomllib
from pathlib import Path

from clutch.errors import ConfigError
from clutch.lab.setting import Setting

OURS = ("profile", "workers", "threads", "tasks")


def write(path: Path, pool: str, setting: Setting) -> None:
    """Make the setting that of a pool in this file, which is made if it is not there. Raises ConfigError."""
    text = path.read_text() if path.exists() else ""
    try:
        before = tomllib.loads(text)
    except ValueError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    new = written(text, pool, setting)
    after = tomllib.loads(new)
    wanted = {name: value for name, value in before.get("pools", {}).get(pool, {}).items() if name not in OURS}
    if after != {**before, "pools": {**before.get("pools", {}), pool: {**wanted, **setting.options()}}}:
        raise ConfigError(
            f"{path} has pool {pool} in a form that is not understood here; write there by hand:\n"
            f"{setting.section(pool)}"
        )
    path.write_text(new)


def written(text: str, pool: str, setting: Setting) -> str:
    """The text with the lines of the setting below `[pools.NAME]`."""
    lines = text.splitlines()
    head = f"[pools.{pool}]"
    at = next((nr for nr, line in enumerate(lines) if line.partition("#")[0].strip() == head), None)
    ours = setting.section(pool).splitlines()[1:]
    if at is None:
        return "\n".join([*lines, *([""] if lines else []), head, *ours, ""])
    end = next((nr for nr in range(at + 1, len(lines)) if lines[nr].lstrip().startswith("[")), len(lines))
    kept = [line for line in lines[at + 1 : end] if line.partition("=")[0].strip() not in OURS]
    return "\n".join([*lines[: at + 1], *ours, *kept, *lines[end:], ""])
