"""Clutch and its peers at the same work, in rounds that each peer shares with Clutch.

Few live at a time, as idle ones poll, too: each group has Clutch in it, started afresh, so that every peer is compared
with a Clutch of its own rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from clutch.lab.benching import EACH_SECONDS, Bench, Cell, play
from clutch.lab.comparing import COST, Ratio, Verdict, ratio_of
from clutch.lab.contender import Contender, contender_of
from clutch.lab.load import Figures, Load
from clutch.lab.peers.jobs import ours, redis_server
from clutch.lab.peers.seam import Peer
from clutch.lab.setting import Setting
from clutch.lab.trial import TrialFailed
from clutch.lab.work import App, JobRun, Work

BESIDE = 3
"""Peers that live at a time."""
CLUTCH = "clutch"


@dataclass(frozen=True)
class Pair:
    """A peer to Clutch, round by round. `cost`: of the CPU time of a unit, where less is better; None: it is not known
    of any round."""

    clutch: str
    rate: Ratio | None
    cost: Ratio | None

    @property
    def dearer(self) -> Verdict:
        """Whether the peer uses more CPU time."""
        return Verdict.ALIKE if self.cost is None else self.cost.verdict

    @property
    def faster(self) -> Verdict:
        return Verdict.ALIKE if self.rate is None else self.rate.verdict


@dataclass
class Comparison:
    """`left_out`: why peers do not take part, by name."""

    bench: Bench
    peers: list[Peer] = field(default_factory=list)
    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    pairs: dict[str, Pair] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def clutches(work: Work, workers: int, load: Load | None) -> dict[str | None, Contender]:
    """Clutch with its defaults, by the store of the peers that it is compared with."""
    if isinstance(work, JobRun):
        stores = ["sqlite"] if redis_server.lacks() else ["sqlite", "redis"]
        return {store: of_jobs(work, workers, store, load) for store in stores}
    setting = Setting("auto" if isinstance(work, App) else "process", workers)
    return {None: replace(contender_of(work, setting, load), name=CLUTCH, slots=None)}


def of_jobs(work: JobRun, workers: int, store: str, load: Load | None) -> Contender:
    setting = Setting("process", workers)
    order = ours.order_of(work, setting, store)
    return Contender(f"{CLUTCH} {store}", order, load or work.load(setting), workers=workers, options=setting.options())


def compare(
    comparison: Comparison,
    with_stores: Mapping[str | None, Contender],
    contenders: Mapping[str, Contender],
    rounds: int | None,
    tell: Callable[[str], object],
    seed: int = 0,
) -> None:
    """Fill the comparison. Whoever fails is told and left out. Raises TrialFailed where Clutch fails, and
    KeyboardInterrupt only where no round was whole."""
    for clutch, group in groups(comparison.peers, with_stores, contenders):
        bench, both = comparison.bench, [clutch, *group]
        part = Bench(bench.work, bench.unit, bench.seconds, bench.machine)
        each = EACH_SECONDS if rounds is None else rounds * bench.seconds
        tell(f"{', '.join(one.name for one in both)}: {each * len(both):.0f} s, and their starts")
        try:
            play(part, both, rounds, tell, seed)
        except KeyboardInterrupt:
            take(comparison, part, clutch.name)
            if not comparison.bench.cells:
                raise
            tell("interrupted: what is whole is kept")
            return
        if clutch.name in part.failed:
            raise TrialFailed(part.failed[clutch.name])
        take(comparison, part, clutch.name)


def groups(
    peers: Sequence[Peer], with_stores: Mapping[str | None, Contender], contenders: Mapping[str, Contender]
) -> list[tuple[Contender, list[Contender]]]:
    """Clutch and some peers that are compared with it, each peer once."""
    found: list[tuple[Contender, list[Contender]]] = []
    for store, clutch in with_stores.items():
        its = [contenders[peer.name] for peer in peers if peer.store == store and peer.name in contenders]
        parts = [its[begin : begin + BESIDE] for begin in range(0, len(its), BESIDE)]
        found += [(clutch, part) for part in parts]
    return found or [(clutch, []) for clutch in with_stores.values()]


def take(comparison: Comparison, part: Bench, clutch: str) -> None:
    """Add the figures of a group, and the ratios of its rounds."""
    comparison.bench.failed |= part.failed
    mine = part.cells.pop(clutch, None)
    if mine is None:
        return
    whole = comparison.bench.cells.setdefault(clutch, Cell([], mine.start_s, options=mine.options))
    whole.rounds += mine.rounds
    unit = comparison.bench.unit
    for name, cell in part.cells.items():
        comparison.bench.cells[name] = cell
        comparison.pairs[name] = Pair(
            clutch,
            ratio(cell.rounds, mine.rounds, lambda one: one.rate or None),
            ratio(cell.rounds, mine.rounds, lambda one: cost_s(one, unit), COST),
        )


def ratio(
    theirs: Sequence[Figures],
    mine: Sequence[Figures],
    of: Callable[[Figures], float | None],
    at: float | None = None,
) -> Ratio | None:
    """Of the rounds that both have played, and in which it is known of both. A figure that is not known is left out,
    never guessed: a small one would be a large advantage."""
    pairs = [(of(one), of(other)) for one, other in zip(theirs, mine, strict=False)]
    known = [(one, other) for one, other in pairs if one is not None and other is not None]
    return ratio_of([one for one, _ in known], [other for _, other in known], at=at) if known else None


def cost_s(figures: Figures, unit: str) -> float | None:
    """CPU time of a unit; None: it is not known. Of calls with that of the program that calls, as pools differ in where
    they work."""
    used = figures.cpu_s + (figures.load_cpu_s if unit == "calls" else 0.0)
    return used / figures.units if figures.units and not figures.ended and used > 0 else None
