"""`clutch bench`: measure a function under one setting of a pool, or under a grid of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from clutch.cli.flags import as_json
from clutch.cli.lab import HEADINGS, machine, row_of, seconds_of, tell, work_arguments, work_of
from clutch.cli.table import aligned
from clutch.cli.tune import middle_of
from clutch.errors import ClutchError
from clutch.lab import benching
from clutch.lab.benching import Bench
from clutch.lab.comparing import ROUNDS_MIN, Ratio, Verdict
from clutch.lab.setting import PROFILES, Setting, grid, profiles_of, sizes_of

WORSE_EXIT_CODE = 3
CALLERS_MAX = 100_000


@click.command("bench", short_help="Measure a function under one or many settings of a pool.")
@work_arguments
@click.option("--profile", default="process", show_default=True, metavar="NAMES", help=f"Of {', '.join(PROFILES)}.")
@click.option("-w", "--workers", default="2", show_default=True, metavar="SIZES", help="Such as 2, 1,2,4 or 1..5.")
@click.option("--threads", default="8", show_default=True, metavar="SIZES", help="Threads of a worker, of `thread`.")
@click.option("--tasks", default="64", show_default=True, metavar="SIZES", help="Tasks, of `async` and `greenlet`.")
@click.option("--callers", type=click.IntRange(1, CALLERS_MAX), help="Calls under way. [default: twice the slots]")
@click.option(
    "--rounds", type=click.IntRange(1, 1000), default=ROUNDS_MIN, show_default=True, help="Measurements of each."
)
@click.option("--seconds", default="1s", show_default=True, metavar="DURATION", help="Time of each measurement.")
@click.option("--seed", type=int, default=0, help="Seed of the order in which settings are measured.")
@click.option("--save", type=click.Path(path_type=Path), help="Write all figures to this file.")
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    help=f"Compare with a saved file; exit with {WORSE_EXIT_CODE} where a setting is worse.",
)
@as_json
@click.pass_context
def command(
    context: click.Context,
    target: str,
    arguments: tuple[str, ...],
    profile: str,
    workers: str,
    threads: str,
    tasks: str,
    callers: int | None,
    rounds: int,
    seconds: str,
    seed: int,
    save: Path | None,
    against: Path | None,
    as_json: bool,
) -> None:
    """Measure calls of a function with these arguments, as many under way as there are callers.

    Each setting has a pool of its own, started afresh; rounds go through all of them in turn. A VALUE is read as JSON
    where it is JSON, else as text.
    """
    sizes = (sizes_of(workers, "--workers"), sizes_of(threads, "--threads"), sizes_of(tasks, "--tasks"))
    settings = grid(profiles_of(profile), *sizes)
    kept = None if against is None else read(against)
    tell(machine())
    work, time_each = work_of(target, arguments), seconds_of(seconds, "--seconds")
    bench = benching.measure(work, settings, rounds, time_each, callers, {"text": machine()}, tell, seed)
    ratios = {} if kept is None else benching.against(bench, kept)
    if save is not None:
        save.write_text(json.dumps(bench.as_data()))
    click.echo(json.dumps(as_data(bench, ratios)) if as_json else as_text(bench, ratios))
    if any(ratio.verdict is Verdict.WORSE for ratio in ratios.values()):
        context.exit(WORSE_EXIT_CODE)


def read(file: Path) -> Bench:
    """Raises ClutchError."""
    try:
        return Bench.of_data(json.loads(file.read_text()))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ClutchError(f"{file} cannot be read as a file of `clutch bench --save`: {error}") from error


def as_text(bench: Bench, ratios: dict[Setting, Ratio]) -> str:
    rows: list[tuple[str, ...]] = [(*HEADINGS, *(["to the saved", ""] if ratios else []))]
    for setting, figures in bench.rounds.items():
        ratio = ratios.get(setting)
        more = ("", "") if ratio is None else (str(ratio), ratio.verdict.value)
        rows.append((*row_of(str(setting), middle_of(figures)), *(more if ratios else ())))
    failed = [f"{setting} fails: {reason.splitlines()[0]}" for setting, reason in bench.failed.items()]
    return "\n".join([*aligned(rows), *failed])


def as_data(bench: Bench, ratios: dict[Setting, Ratio]) -> dict[str, Any]:
    compared = {
        str(setting): {
            "ratio": ratio.median,
            "low": ratio.low,
            "high": ratio.high,
            "p": ratio.p,
            "verdict": ratio.verdict.value,
        }
        for setting, ratio in ratios.items()
    }
    return {**bench.as_data(), "against": compared} if ratios else bench.as_data()
