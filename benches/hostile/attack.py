"""What an attack is: a function that misbehaves for a while, the server that it meets, and what must hold meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

APP = "benches.hostile.apps:app"
SECONDS = 6.0
"""Of one attack, unless it says otherwise."""


@dataclass(frozen=True)
class Target:
    """Whom to attack, and for how long."""

    port: int
    admin_port: int
    seconds: float


@dataclass(frozen=True)
class Bounds:
    """What must hold from the first sample to the last: growth in MB and in descriptors, requests of the normal client
    that failed; and what must be left of that growth afterwards."""

    dispatcher_mb: float = 48
    workers_mb: float = 64
    dispatcher_descriptors: int = 1_200
    workers_descriptors: int = 120
    failed_max: int = 0
    left_mb: float = 64
    """Of the dispatcher and the workers together, after the attacker has gone."""
    workers_die: bool = False


@dataclass(frozen=True)
class Attack:
    """One line of the table."""

    name: str
    act: Callable[[Target], str]
    """Returns what the server answered, in a few words. Raises `AssertionError` when that is wrong in itself."""
    bounds: Bounds = Bounds()
    options: dict[str, str] = field(default_factory=dict)
    """Of `fronts.serve`, over those of the table."""
    flags: tuple[str, ...] = ()
    """More of the command line, over those of the table; `{admin}` is a free port."""
    app: str = APP
    descriptors_max: int | None = None
    """The limit, soft and hard, that the server starts with."""
    seconds: float = SECONDS
    quick: bool = False
    """Is among the tests."""
