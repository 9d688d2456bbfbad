"""A setting, written into a configuration; what else is there, and comments on lines of their own, stay as they are."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from clutch.errors import ConfigError
from clutch.lab.setting import Setting

OURS = ("profile", "workers", "threads", "tasks")


def write(path: Path, pool: str, setting: Setting) -> None:
    """Make the setting that of a pool in this file, which is made if it is not there. Raises ConfigError; the file is
    as it was, then."""
    text = ""
    if path.exists():
        try:
            with path.open(newline="", encoding="utf-8") as file:
                text = file.read()
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path} cannot be read: {error}") from None
    try:
        before = tomllib.loads(text)
    except ValueError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    new = written(text, pool, setting)
    if read(new) != wanted(before, pool, setting):
        raise ConfigError(
            f"{path} has pool {pool} in a form that is not understood here; write there by hand:\n"
            f"{setting.section(pool)}"
        )
    # Whole or not at all; where it is a link, what it leads to.
    at = path.resolve()
    draft = at.with_name(f".{at.name}.{os.getpid()}")
    try:
        with draft.open("w", newline="", encoding="utf-8") as file:
            file.write(new)
        if at.exists():
            draft.chmod(at.stat().st_mode & 0o777)
        draft.replace(at)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise ConfigError(f"{path} cannot be written: {error}; write there by hand:\n{setting.section(pool)}") from None


def read(text: str) -> Any:
    try:
        return tomllib.loads(text)
    except ValueError:
        return None


def wanted(before: dict[str, Any], pool: str, setting: Setting) -> Any:
    """The configuration with the setting in it; None where pools are no tables."""
    pools = before.get("pools", {})
    main = pools.get(pool, {}) if isinstance(pools, dict) else None
    if not isinstance(main, dict):
        return None
    kept = {name: value for name, value in main.items() if name not in OURS}
    return {**before, "pools": {**pools, pool: {**kept, **setting.options()}}}


def written(text: str, pool: str, setting: Setting) -> str:
    """The text with the lines of the setting below `[pools.NAME]`."""
    end_of_line = "\r\n" if "\r\n" in text else "\n"
    lines = text.splitlines()
    head = f"[pools.{pool}]"
    at = next((nr for nr, line in enumerate(lines) if line.partition("#")[0].strip() == head), None)
    ours = setting.section(pool).splitlines()[1:]
    if at is None:
        return end_of_line.join([*lines, *([""] if lines else []), head, *ours, ""])
    end = next((nr for nr in range(at + 1, len(lines)) if lines[nr].lstrip().startswith("[")), len(lines))
    kept = [line for line in lines[at + 1 : end] if line.partition("=")[0].strip() not in OURS]
    return end_of_line.join([*lines[: at + 1], *ours, *kept, *lines[end:], ""])
