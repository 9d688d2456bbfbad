"""How many jobs each row takes, in full and with --quick."""

from __future__ import annotations

from dataclasses import dataclass

from benches.harness import QUICK, Scale


@dataclass(frozen=True)
class Counts:
    """Jobs of one sample; callers of the sweep and waiting jobs of growth are the same in both."""

    drain: int
    commands: int
    enqueue: int
    enqueue_many: int
    sqlite: int
    sweep: int
    latency: int
    waiting: tuple[int, ...]


_FULL = Counts(
    drain=20_000,
    commands=50_000,
    enqueue=5_000,
    enqueue_many=20_000,
    sqlite=3_000,
    sweep=20_000,
    latency=200,
    waiting=(1_000, 100_000, 1_000_000),
)
_QUICK = Counts(
    drain=2_000,
    commands=5_000,
    enqueue=1_000,
    enqueue_many=5_000,
    sqlite=600,
    sweep=5_000,
    latency=50,
    waiting=(1_000, 100_000),
)


def counts(scale: Scale) -> Counts:
    """Of this run; few seconds of a sample mean --quick."""
    return _QUICK if scale.seconds <= QUICK.seconds else _FULL
