"""Contenders that live at the same time, and play rounds until they fail."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from clutch.lab.comparing import rounds_of
from clutch.lab.contender import Contender
from clutch.lab.load import Figures, Load
from clutch.lab.trial import Trial, TrialFailed

Tell = Callable[[str], object]
WARM_RATIO = 0.05
"""Change from one window to the next below which work counts as warm."""
WARM_WINDOWS_MAX = 6


@dataclass
class Field:
    """`failed`: why each that is left out is, by its name. `needed`: whose failure is raised. `opened`: starts one, if
    that is more than its start."""

    contenders: Sequence[Contender]
    tell: Tell
    failed: dict[str, str] = field(default_factory=dict)
    needed: Collection[str] = ()
    until: float = math.inf
    """When nobody waits for them any more, by the monotonic clock."""
    opened: Callable[[Contender], contextlib.AbstractContextManager[Trial]] | None = None
    trials: dict[str, Trial] = field(default_factory=dict)
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def start(self, ready: Callable[[Contender, Trial], object]) -> None:
        """Start each in turn, and make it ready."""
        for one in self.contenders:
            with self.left_out(one):
                opened = one.start(self.tell, self.until) if self.opened is None else self.opened(one)
                trial = self._stack.enter_context(opened)
                ready(one, trial)
                self.trials[one.name] = trial

    def rounds(self, count: int, seed: int = 0) -> Iterator[Iterator[Contender]]:
        """The order of each round: those that live when it is their turn."""
        for order in rounds_of(list(self.contenders), count, seed):
            yield self.alive(order)

    def alive(self, order: Sequence[Contender] | None = None) -> Iterator[Contender]:
        for one in self.contenders if order is None else order:
            if one.name not in self.failed:
                yield one

    @contextlib.contextmanager
    def left_out(self, one: Contender) -> Iterator[None]:
        """Whoever fails is told, and takes no part any more."""
        try:
            yield
        except TrialFailed as error:
            if one.name in self.needed:
                raise
            self.failed[one.name] = str(error)
            if len(self.contenders) > 1:
                self.tell(f"{one.name} is left out: {str(error).splitlines()[0]}")
            if (trial := self.trials.pop(one.name, None)) is not None:
                trial.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()


def warm_up(trial: Trial, load: Load, seconds: float) -> None:
    """Until the rate of a window is that of the one before, or the windows are used up."""
    window, before = max(0.05, seconds / 4), 0.0
    for _ in range(WARM_WINDOWS_MAX):
        rate = trial.measure(load, window).rate
        if before and abs(rate - before) <= WARM_RATIO * before:
            return
        before = rate


def round_of(field: Field, order: Iterable[Contender], seconds: float, nr: int) -> dict[str, Figures]:
    """What each that lives shows when it is its turn, by its name. `nr`: of the round."""
    seen: dict[str, Figures] = {}
    for one in order:
        with field.left_out(one):
            # Each CPU for a pair of rounds, in which the order is turned round.
            seen[one.name] = field.trials[one.name].measure(one.load, seconds, nr // 2)
    return seen
