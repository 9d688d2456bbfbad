"""Choice of the store of a command."""

from __future__ import annotations

import re

import click

from clutch._jobs.opening import offers_of
from clutch.errors import ConfigError

STORE_HELP = (
    "Where the jobs are: sqlite:///jobs.db, or a name in [stores] of the nearest config; by default the only one "
    "there. A URL with a password belongs into the variable."
)
NAME_OR_PATH = re.compile(r"(sqlite:)?[\w./-]+")
"""Matches text without a password; with `sqlite:`, the URL of a file with too few slashes."""


def url_of(given: str | None) -> str:
    """The URL that is given, or that of the store of this name in the nearest config, or of the only one there."""
    from clutch.config import find, load_stores

    if given is not None and "://" in given:
        try:
            offers_of(given)
        except ConfigError as error:
            raise click.UsageError(f"--store: {error}") from None
        return given
    try:
        file = find()
    except ConfigError as error:
        said = "is missing" if not given else f"{shown(given)} is no URL"
        wanted = f"--store {said}: give one, such as {example(given)}, or set CLUTCH_STORE ({error})"
        raise click.UsageError(wanted) from None
    stores = load_stores(file)
    if not given and len(stores) == 1:
        return next(iter(stores.values()))
    if given in stores:
        return stores[given]
    said = "--store is missing" if not given else f"--store {shown(given)}: there is no such store"
    known = ", ".join(stores) or "none"
    raise click.UsageError(f"{said}; give a URL, such as {example(given)}, or one of [stores] in {file}: {known}")


def shown(given: str) -> str:
    """Hides anything but a name: it may be a mistyped URL with its password."""
    return given if NAME_OR_PATH.fullmatch(given) else "…"


def example(given: str | None) -> str:
    """The URL that was meant, if a file or a server was."""
    scheme = (given or "").partition(":")[0]
    if scheme in ("redis", "rediss", "sidekiq"):
        return f"{scheme}://localhost:6379/0"
    path = (given or "").removeprefix("sqlite:")
    is_file = NAME_OR_PATH.fullmatch(path) and ("." in path or "/" in path or path != given)
    return f"sqlite:///{path}" if is_file else "sqlite:///jobs.db"
