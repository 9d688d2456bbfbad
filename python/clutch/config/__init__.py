"""Configurations: read, merged from their layers, checked, and every option of a pool decided.

The options are in options.py. Promises that one `ConfigError` reports everything that is wrong, each with its place.
Does not import the extension.
"""

from clutch.config.fronts import front_core
from clutch.config.load import Config, compose, find, load, load_stores
from clutch.config.pools import PoolSpec, resolve
from clutch.config.tables import APPS

__all__ = ["APPS", "Config", "PoolSpec", "compose", "find", "front_core", "load", "load_stores", "resolve"]
