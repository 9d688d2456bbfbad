"""What a tuning is to find, and what it has found."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from clutch.lab.comparing import ROUNDS_MIN, Ratio
from clutch.lab.load import Figures, Load, spoiled, typical
from clutch.lab.probing import Probe
from clutch.lab.scoring import Basis
from clutch.lab.setting import Setting
from clutch.lab.work import Work

CALLERS_MAX = 2048
DEPLOYED_MIN = 0.9
"""Share of its rate in the final that the winner reaches on a fresh start, or it is said."""
TAIL_UNITS = 10
"""Units beyond a percentile for it to be told."""
SHARE_TRIED = 0.25
"""Of the settings that are worth a try: measured before one of them is called the best."""
SETTINGS_MIN = 4
NOISE_MAX = 1.25
"""High to low end of an interval from which on a machine is too noisy."""


@dataclass(frozen=True)
class Goal:
    """What is wanted beside a high rate. Seconds and bytes; None: no limit. `load`: what is asked of each setting;
    None: what the work is asked for unless somebody says."""

    percentile: str = "99"
    latency_s: float | None = None
    memory_bytes: int | None = None
    load: Load | None = None

    def is_met(self, *rounds: Figures) -> bool:
        """By the percentile of all rounds together, and by the memory of each."""
        slow = self.latency_s is not None and self.latency_of(rounds) > self.latency_s
        large = self.memory_bytes is not None and max(one.pss_bytes for one in rounds) > self.memory_bytes
        return not slow and not large

    def latency_of(self, rounds: Sequence[Figures]) -> float:
        return typical(rounds).latency_s.get(self.percentile, math.inf)

    def units_wanted(self) -> int:
        """Units of which the percentile is more than that of a few that were slow."""
        return 0 if self.latency_s is None else math.ceil(TAIL_UNITS / (1 - float(self.percentile) / 100))

    def load_of(self, work: Work, setting: Setting, is_long: bool = False) -> Load:
        """With an objective nobody waits for a slot; without one there is always work that waits, unless it takes so
        long that waiting for what waits would take the whole budget."""
        if self.load is not None:
            return self.load
        wanted = work.load(setting)
        if self.latency_s is not None or is_long:
            return Load(min(wanted.callers, setting.slots))
        # More would only wait, and be waited for at the end of each measurement.
        return Load(min(wanted.callers, CALLERS_MAX, 2 * setting.slots))


@dataclass
class Found:
    """What a tuning has shown. `played`: figures of each setting, round by round; `again`: of the winner, on a fresh
    start after the final."""

    probe: Probe
    winner: Setting
    tried: dict[Setting, Figures]
    failed: dict[Setting, str]
    space: int = 0
    """Settings that were worth a try."""
    played: dict[Setting, list[Figures]] = field(default_factory=dict)
    ratios: dict[Setting, Ratio] = field(default_factory=dict)
    """Of each finalist to the winner."""
    missed: set[Setting] = field(default_factory=set)
    """Finalists that did not keep to the objective, or to the work."""
    again: Figures | None = None
    basis: Basis = Basis.RATES
    """What the settings were compared by."""
    not_again: str | None = None
    """Why the winner failed then."""
    is_goal_met: bool = True
    """Of the winner, also when it was started again."""
    units_wanted: int = 0
    """For the percentile of the objective."""
    seconds: float = 0.0
    is_whole: bool = True
    """False: it was interrupted."""

    @property
    def seen(self) -> int:
        """Settings that were tried."""
        return len({*self.tried, *self.failed})

    @property
    def wanted(self) -> int:
        """Settings to be tried before one of them is called the best."""
        return min(self.space, max(SETTINGS_MIN, math.ceil(SHARE_TRIED * self.space)))

    @property
    def is_sure(self) -> bool:
        """Whether the winner was compared with enough others, in enough rounds, and was itself when started again."""
        rounds = min(map(len, self.played.values()), default=0)
        is_itself = self.again is not None and self.is_goal_met
        return self.is_whole and self.seen >= self.wanted and rounds >= ROUNDS_MIN and is_itself

    @property
    def deployed(self) -> float | None:
        """Rate of the winner on a fresh start to that in the final."""
        if self.again is None or not (rounds := self.played.get(self.winner)):
            return None
        rate = statistics.median(one.rate for one in rounds)
        return self.again.rate / rate if rate else None

    def word_of(self, setting: Setting) -> str:
        """How it did beside the winner."""
        if setting in self.missed:
            return "misses the objective"
        ratio = self.ratios.get(setting)
        return "" if ratio is None else ratio.word

    def cautions(self) -> list[str]:
        """What makes the result less sure than it seems."""
        return [*self._of_time(), *self._of_winner(), *self._of_machine()]

    def _of_time(self) -> Iterator[str]:
        if not self.is_whole:
            yield "it was interrupted: this is the best of what was measured until then"
        if self.seen < self.wanted:
            yield (
                f"only {self.seen} of {self.space} settings could be measured in this time: whether another is better "
                "is not known; give it more (--budget)"
            )
        if not self.played:
            yield "there was no time to play the best of them against each other; give it more (--budget)"
        elif (rounds := min(map(len, self.played.values()))) < ROUNDS_MIN:
            yield f"there was time for {rounds} rounds only, and fewer than {ROUNDS_MIN} tell nothing apart"

    def _of_winner(self) -> Iterator[str]:
        rounds = self.played.get(self.winner, [])
        units, failed = sum(one.units for one in rounds), sum(sum(one.errors.values()) for one in rounds)
        if failed:
            yield f"{failed:,} of {failed + units:,} units failed under the winner"
        if ended := sum(one.ended for one in rounds):
            yield f"{ended} processes ended under the winner meanwhile: their CPU time is not known"
        if 0 < units < self.units_wanted:
            wanted = f"{self.units_wanted:,} are wanted for this percentile"
            yield f"the winner had {units:,} units, and {wanted}: give it more (--budget)"
        if self.not_again is not None:
            yield f"started again, the winner failed: {self.not_again}"
        if not self.is_goal_met:
            yield "with its fresh start, the winner did not keep to the objective: it is at its edge"
        for reason in spoiled({"": rounds}):
            yield f"more may be possible: {reason}"

    def _of_machine(self) -> Iterator[str]:
        if self.basis is Basis.DISTURBED:
            yield "other programs used the CPUs meanwhile: settings were compared by CPU time, not by rates"
        widths = [ratio.high / ratio.low for ratio in self.ratios.values()]
        if widths and min(widths) > NOISE_MAX:
            yield (
                f"this machine is too noisy to tell settings apart in this time: ratios are uncertain by "
                f"{(min(widths) - 1) / 2:.0%} or more; repeat with more time (--budget), or with less beside it"
            )
        if self.deployed is not None and self.deployed < DEPLOYED_MIN:
            yield f"started again, the winner reached only {self.deployed:.0%} of its rate in the final"
        if self.deployed is not None and self.deployed > 1 / DEPLOYED_MIN:
            yield f"this machine has changed meanwhile: started again, the winner reached {self.deployed:.0%}"
