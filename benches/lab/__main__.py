"""`python -m benches.lab tune|alike|planted [NAME…]`: whether the lab's conclusions hold.

`tune`: the rate of what a tuning chooses to that of the best of the whole grid. `alike`, `planted`: verdicts on two
that are the same, and on two of which one does 5 % more work.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable

from clutch.lab.benching import STARTS, Bench, measure
from clutch.lab.comparing import COST, Verdict, ratio_of
from clutch.lab.contender import Contender, contender_of
from clutch.lab.load import Load
from clutch.lab.machine import facts, line
from clutch.lab.outcome import Goal
from clutch.lab.probing import Probe, cost
from clutch.lab.scoring import scores_of
from clutch.lab.setting import Setting, grid
from clutch.lab.tuning import tune
from clutch.lab.work import App, Calls, Request, Work

MODULE = "benches.lab.samples"
WORKS: dict[str, Work] = {
    "pure Python": Calls(MODULE, "spin"),
    "numpy": Calls(MODULE, "product"),
    "blocking I/O": Calls(MODULE, "blocking"),
    "asyncio I/O": Calls(MODULE, "awaiting"),
    "mixed": Calls(MODULE, "mixed"),
    "FastAPI def": App(f"{MODULE}:app", (Request("/sync"),)),
    "C without the GIL": Calls(MODULE, "digest"),
    "C with the GIL": Calls(MODULE, "loads"),
}
GAMES = 100
ROUNDS = 60
WINDOW_SECONDS = 0.1
PLANTED = 1.05
N = 20_000


def whole_grid(probe: Probe) -> list[Setting]:
    """Much more than a tuning looks at."""
    if probe.interface == "asgi":
        return grid(["async"], [1, 2, 3, 4], [1], [1, 2, 4, 8, 16, 32, 64, 128, 256])
    if probe.is_async:
        return grid(["async", "process"], [1, 2, 4], [1], [1, 4, 16, 64, 256, 1024])
    found = grid(["process"], [1, 2, 3, 4, 8, 16, 32], [1], [1])
    found += grid(["thread"], [1, 2, 4], [1, 2, 4, 8, 16, 32, 64, 128, 256], [1])
    return found + (grid(["greenlet"], [1, 2], [1], [16, 64, 256, 1024]) if probe.waits > 0.2 else [])


def tuned(names: list[str], budget_s: float, tell: Callable[[str], object]) -> list[dict[str, object]]:
    found = []
    for name in names or list(WORKS):
        work = WORKS[name]
        began = time.monotonic()
        result = tune(work, Goal(), 2, budget_s, tell)
        took = time.monotonic() - began
        loads = {setting: Goal().load_of(work, setting) for setting in whole_grid(result.probe)}
        seconds = max(0.25, 5 * result.probe.wall_s)
        bench = Bench(str(work), work.unit, seconds, facts())
        field = [contender_of(work, setting, load) for setting, load in loads.items()]
        measure(bench, field, 2, tell)
        settings = {str(setting): setting for setting in [*loads, result.winner]}
        of_each = {settings[one]: cell.rounds for one, cell in bench.cells.items()}
        scores = scores_of(of_each, result.probe)
        best = sorted(scores, key=lambda one: -statistics.median(scores[one]))[:4]
        final = Bench(str(work), work.unit, seconds, facts())
        field = [contender_of(work, one, Goal().load_of(work, one)) for one in dict.fromkeys([result.winner, *best])]
        measure(final, field, 12, tell)
        played = scores_of({settings[one]: cell.rounds for one, cell in final.cells.items()}, result.probe)
        medians = {one: statistics.median(values) for one, values in played.items()}
        top = max(medians, key=medians.__getitem__)
        share = medians[result.winner] / medians[top]
        found.append(
            {
                "work": name,
                "chosen": str(result.winner),
                "best of the grid": str(top),
                "share": round(share, 3),
                "settings": len(loads),
                "tune s": round(took),
                "basis": result.basis.name,
                "rates": {str(one): round(value) for one, value in sorted(medians.items(), key=lambda it: cost(it[0]))},
            }
        )
        print(json.dumps(found[-1]), flush=True)
    shares = [one["share"] for one in found]
    print(f"mean {statistics.mean(shares):.3f}, worst {min(shares):.3f}")  # pyright: ignore[reportArgumentType]
    return found


def games(ratio: float, tell: Callable[[str], object], count: int) -> dict[str, int]:
    """Verdicts of two contenders of which the second does `ratio` times the work, by CPU time for each call."""
    setting = Setting("process", 1)
    pair = [("one", N), ("other", round(N * ratio))]
    seen = {verdict.value: 0 for verdict in Verdict}
    with_rates = dict(seen)
    for nr in range(count):
        field = [Contender(name, Calls(MODULE, "spin", kwargs={"n": n}).order(setting), Load(2)) for name, n in pair]
        bench = measure(
            Bench("spin", "calls", WINDOW_SECONDS, facts()), field, ROUNDS, lambda _: None, seed=nr, starts=STARTS
        )
        one, other = (bench.cells[name].rounds for name, _ in pair)
        by_cpu = ratio_of([f.cpu_each_s for f in other], [f.cpu_each_s for f in one], seed=nr, at=COST)
        by_rate = ratio_of([f.rate for f in one], [f.rate for f in other], seed=nr)
        seen[by_cpu.verdict.value] += 1
        with_rates[by_rate.verdict.value] += 1
        tell(f"{nr + 1} of {count}: CPU {by_cpu} {by_cpu.verdict.value}; rate {by_rate} {by_rate.verdict.value}")
    print(json.dumps({"ratio": ratio, "games": count, "by CPU time": seen, "by rate": with_rates}))
    return seen


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benches.lab", description=__doc__)
    parser.add_argument("what", choices=["tune", "alike", "planted"])
    parser.add_argument("names", nargs="*", help=f"of the work: {', '.join(WORKS)}")
    parser.add_argument("--budget", type=float, default=120.0, help="seconds of a tuning")
    parser.add_argument("--games", type=int, default=GAMES)
    asked = parser.parse_args()

    def tell(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    tell(line())
    if asked.what == "tune":
        tuned(asked.names, asked.budget, tell)
    else:
        games(1.0 if asked.what == "alike" else PLANTED, tell, asked.games)
    return 0


if __name__ == "__main__":
    sys.exit(main())
