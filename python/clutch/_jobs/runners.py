"""Who runs the jobs of a store, and whether each lives: leases tell no time, so their counters are watched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

LOOK_INTERVAL = 0.25
"""Seconds between two looks."""
RENEWALS_MISSED, SLACK_SECONDS = 1.5, 1.0
"""Who lives renews within this many times the interval of its renewals, and this."""


@dataclass(frozen=True, slots=True)
class Runner:
    """Holder of a lease of a store: a front of a dispatcher that runs jobs, or whoever maintains the store."""

    name: str
    """Unlike that of any other, also of the same process: `HOST:PID:…`."""
    host: str
    """Name of its machine, or of its container."""
    pid: int | None
    """Number of its process there."""
    running: int
    """Jobs that it has claimed."""
    lease_seconds: float
    """After so long without a renewal, another dispatcher puts its jobs back."""
    leads: bool
    """It maintains the store, and runs no jobs under this lease."""
    is_alive: bool | None
    """True: it has renewed its lease while it was watched. False: it has not, for longer than one that lives takes.
    None: it was not watched for that long."""


class Watch:
    """Remembers for how long each counter has stood: pure. Time counts only while the store answers."""

    def __init__(self) -> None:
        self._holders: dict[str, dict[str, Any]] = {}
        self._stood: dict[str, float] = {}
        self._moved: set[str] = set()
        self._looked_at: float | None = None

    def looked(self, holders: Sequence[dict[str, Any]], now: float) -> bool:
        """Takes all holders as a look at this time (seconds) has found them. Whether no other look is needed."""
        is_first = self._looked_at is None
        passed = 0.0 if self._looked_at is None else min(now - self._looked_at, 2 * LOOK_INTERVAL)
        self._looked_at = now
        for holder in holders:
            # One that has come since lives, too.
            known = self._holders.get(holder["name"], {})
            if not is_first and known.get("renewals") != holder["renewals"]:
                self._moved.add(holder["name"])
            self._stood[holder["name"]] = self._stood.get(holder["name"], 0.0) + passed
        self._holders = {holder["name"]: holder for holder in holders}
        return all(self._is_alive(holder) is not None for holder in holders)

    def runners(self) -> list[Runner]:
        return [self._runner(holder) for holder in self._holders.values()]

    def _is_alive(self, holder: dict[str, Any]) -> bool | None:
        if holder["name"] in self._moved:
            return True
        needed = holder["renewal_ms"] / 1000 * RENEWALS_MISSED + SLACK_SECONDS
        return False if self._stood[holder["name"]] >= needed else None

    def _runner(self, holder: dict[str, Any]) -> Runner:
        host, pid, _ = (*holder["name"].rsplit(":", 2), "", "")[:3]
        return Runner(
            name=holder["name"],
            host=host,
            pid=int(pid) if pid.isdecimal() else None,
            running=holder["running"],
            lease_seconds=holder["lease_ms"] / 1000,
            leads=holder["leads"],
            is_alive=self._is_alive(holder),
        )
