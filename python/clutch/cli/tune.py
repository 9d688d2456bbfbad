"""`clutch tune`: find the setting of a pool that is best for some work, by measuring."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import Any

import click

from clutch.cli.flags import as_json
from clutch.cli.lab import HEADINGS, machine, row_of, seconds_of, tell, work_arguments, work_of
from clutch.cli.table import aligned
from clutch.config.limits import usable_cpus
from clutch.config.values import SIZE
from clutch.lab.trial import Figures
from clutch.lab.tuning import Found, Goal, tune

BUDGET_SECONDS_MIN = 10.0
OBJECTIVE = re.compile(r"\s*p(50|75|90|95|99|99\.9)\s*<=?\s*(\S+)\s*")


@click.command("tune", short_help="Find the best profile and size for a function, by measuring.")
@work_arguments
@click.option("--slo", metavar="TEXT", help='Objective, such as "p99 < 50ms", with no call waiting for a slot.')
@click.option("--memory", metavar="SIZE", help="The most memory of all processes together, such as 2GB.")
@click.option("--budget", default="2m", show_default=True, metavar="DURATION", help="Time to measure.")
@click.option("--seed", type=int, default=0, help="Seed of the order in which settings are measured.")
@as_json
def command(
    target: str,
    arguments: tuple[str, ...],
    slo: str | None,
    memory: str | None,
    budget: str,
    seed: int,
    as_json: bool,
) -> None:
    """Measure a function under every profile that may suit it, and say which setting to run.

    The function is called with these arguments, again and again, by as many callers as a setting has slots and as many
    that wait: give it arguments that are typical, and nothing that it must not do many times. A VALUE is read as JSON
    where it is JSON, else as text.
    """
    work, goal = work_of(target, arguments), goal_of(slo, memory)
    seconds = seconds_of(budget, "--budget")
    if seconds < BUDGET_SECONDS_MIN:
        raise click.UsageError(
            f"--budget is {budget!r}; {BUDGET_SECONDS_MIN:.0f} s is the least that can tell anything"
        )
    tell(machine())
    found = tune(work, goal, usable_cpus(), seconds, tell, seed)
    click.echo(json.dumps(as_data(found)) if as_json else as_text(found))


def goal_of(slo: str | None, memory: str | None) -> Goal:
    """Raises UsageError."""
    percentile, latency, most = "99", None, None
    if slo is not None:
        if (read := OBJECTIVE.fullmatch(slo)) is None:
            raise click.UsageError(
                f'--slo is {slo!r}; allowed is such as "p99 < 50ms", with p50, p75, p90, p95, p99 or p99.9'
            )
        percentile, latency = read[1], seconds_of(read[2], "--slo")
    if memory is not None:
        try:
            most = int(SIZE.parse(memory))
        except ValueError:
            raise click.UsageError(f"--memory is {memory!r}; allowed: {SIZE.allowed}") from None
    return Goal(percentile, latency, most)


def as_text(found: Found) -> str:
    """The finalists, how sure it is, and what to write where."""
    rows: list[tuple[str, ...]] = [(*HEADINGS, "to the winner")]
    for setting, figures in found.played.items():
        ratio = found.ratios.get(setting)
        rows.append((*row_of(str(setting), middle_of(figures)), "" if ratio is None else f"{ratio}"))
    rounds = len(next(iter(found.played.values()), []))
    failed = [f"{setting} fails: {reason.splitlines()[0]}" for setting, reason in found.failed.items()]
    alike = [str(setting) for setting, ratio in found.ratios.items() if ratio.verdict.value == "not distinguishable"]
    surely = f"not distinguishable from it in {rounds} rounds: {', '.join(alike)}" if alike else "no other came near"
    lines = [*found.probe.sentences(), "", *aligned(rows), *failed, "", f"best: {found.winner} ({surely})"]
    lines += ["", f"clutch run: {found.winner.flags()}", "", found.winner.section("main")]
    return "\n".join(lines)


def middle_of(figures: list[Figures]) -> Figures:
    """The round with the middle rate."""
    return sorted(figures, key=lambda one: one.rate)[len(figures) // 2]


def as_data(found: Found) -> dict[str, Any]:
    played = {str(setting): [asdict(one) for one in figures] for setting, figures in found.played.items()}
    ratios = {
        str(setting): {**asdict(ratio), "verdict": ratio.verdict.value} for setting, ratio in found.ratios.items()
    }
    return {
        "winner": found.winner.options(),
        "probe": {**asdict(found.probe), "waits": found.probe.waits},
        "tried": {str(setting): asdict(figures) for setting, figures in found.tried.items()},
        "failed": {str(setting): reason for setting, reason in found.failed.items()},
        "played": played,
        "ratios": ratios,
        "seconds": found.seconds,
        "machine": machine(),
    }
