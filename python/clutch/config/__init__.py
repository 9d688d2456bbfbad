"""Configurations: read, merged from their layers, checked, and every option of a pool decided.

The options are in options.py. Promises that one `ConfigError` reports everything that is wrong, each with its place.
Does not import the extension.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clutch.config.fronts import front_core
    from clutch.config.loading import Config, compose, find, load, load_stores
    from clutch.config.pools import PoolSpec, resolve
    from clutch.config.tables import APPS

__all__ = ["APPS", "Config", "PoolSpec", "compose", "find", "front_core", "load", "load_stores", "resolve"]

# Loaded on first use: workers need single modules of this package at most.
_LAZY = {
    "front_core": "clutch.config.fronts",
    **dict.fromkeys(("Config", "compose", "find", "load", "load_stores"), "clutch.config.loading"),
    **dict.fromkeys(("PoolSpec", "resolve"), "clutch.config.pools"),
    "APPS": "clutch.config.tables",
}


def __getattr__(name: str) -> object:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'clutch.config' has no attribute {name!r}")
