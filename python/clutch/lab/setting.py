"""A setting of a pool, as it is measured: profile, workers, threads and tasks."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from clutch.errors import ConfigError

AUTO = "auto"
"""The profile that Clutch chooses for an app."""
PROFILES = ("process", "thread", "async", "greenlet")
RANGE_MAX = 64
"""Sizes that one `A..B` may stand for."""


@dataclass(frozen=True, order=True)
class Setting:
    profile: str
    workers: int
    threads: int = 1
    tasks: int = 1

    @property
    def slots(self) -> int:
        """Calls that run at a time."""
        return self.workers * self.threads * self.tasks

    def options(self) -> dict[str, Any]:
        """Options of a `Pool`."""
        sizes = {"workers": self.workers}
        if self.profile == "thread" or (self.profile == "async" and self.threads > 1):
            sizes["threads"] = self.threads
        if self.profile in ("async", "greenlet"):
            sizes["tasks"] = self.tasks
        return {"profile": self.profile, **sizes}

    def flags(self) -> str:
        """The same for the commands."""
        return " ".join(f"--{name} {value}" for name, value in self.options().items())

    def __str__(self) -> str:
        sizes = "×".join(str(value) for name, value in self.options().items() if name != "profile")
        return f"{self.profile} {sizes}"


def sizes_of(text: str, option: str) -> list[int]:
    """Read sizes such as `1,4,16` or `1..5`. Raises ConfigError."""
    found: list[int] = []
    for part in text.split(","):
        low, dots, high = part.strip().partition("..")
        if not low.isdecimal() or (dots and not high.isdecimal()):
            raise ConfigError(
                f"{option} is {text!r}; allowed are sizes such as 4, lists such as 1,4,16, and ranges such as 1..5"
            )
        first, last = int(low), int(high or low)
        if not 1 <= first <= last or last - first >= RANGE_MAX:
            raise ConfigError(
                f"{option} is {text!r}; a range goes from 1 or more upwards and has at most {RANGE_MAX} sizes"
            )
        found += range(first, last + 1)
    return list(dict.fromkeys(found))


def profiles_of(text: str) -> list[str]:
    """Read profiles such as `process,thread`. Raises ConfigError."""
    found = [part.strip() for part in text.split(",")]
    unknown = [name for name in found if name not in PROFILES]
    if unknown:
        raise ConfigError(
            f"--profile is {text!r}; allowed are {', '.join(PROFILES)}, and several with commas between them"
        )
    return list(dict.fromkeys(found))


def grid(
    profiles: Iterable[str], workers: Iterable[int], threads: Iterable[int], tasks: Iterable[int]
) -> list[Setting]:
    """Each combination once: threads are sizes of `thread` alone, tasks of `async` and `greenlet`."""
    cells = itertools.product(profiles, workers, threads, tasks)
    return list(dict.fromkeys(shaped(*cell) for cell in cells))


def shaped(profile: str, workers: int, threads: int, tasks: int) -> Setting:
    """The setting without the sizes that its profile has not."""
    if profile == "thread":
        return Setting(profile, workers, threads=threads)
    return Setting(profile, workers, tasks=tasks) if profile in ("async", "greenlet") else Setting(profile, workers)
