"""`clutch tune`: find the setting of a pool that is best for some work, by measuring."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from clutch.cli import lab
from clutch.cli.flags import as_json as json_flag
from clutch.config.limits import usable_cpus
from clutch.config.values import SIZE
from clutch.errors import ClutchError
from clutch.lab.comparing import Verdict
from clutch.lab.load import Load
from clutch.lab.machine import line
from clutch.lab.setting import Setting
from clutch.lab.shown import tune_report
from clutch.lab.tuning import Found, Goal, tune
from clutch.lab.work import App, Calls, Handler, JobRun, Work, serve_flags
from clutch.lab.writing import Place, place_of, write

BUDGET_SECONDS_MIN = 10.0
POOL = re.compile(r"[A-Za-z0-9_-]+")
OBJECTIVE = re.compile(r"\s*p(50|75|90|95|99|99\.9)\s*<=?\s*(\S+)\s*")


@click.command("tune", short_help="Find the best profile and size for a function or an app, by measuring.")
@lab.work_arguments
@click.option("--slo", metavar="TEXT", help='Objective, such as "p99 < 50ms", with no call waiting for a slot.')
@click.option("--memory", metavar="SIZE", help="The most memory of all processes together, such as 2GB.")
@click.option("--budget", default="1m", show_default=True, metavar="DURATION", help="Time to measure.")
@click.option("--threads-ok", is_flag=True, help="On Python without a GIL: try `thread`, as the code is thread-safe.")
@click.option("--seed", type=int, default=0, help="Seed of the order in which settings are measured.")
@click.option("--write", is_flag=True, help="Write the winner into clutch.toml.")
@click.option("--pool", help="Name of the pool that is written. [default: main; of an app web, of a handler tcp]")
@click.option("--html", type=click.Path(path_type=Path), help="Write a report with charts to this file.")
@json_flag
def command(target: str, arguments: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Measure work under every profile that may suit it, and say which setting to run.

    TARGET is MODULE:FUNCTION, or MODULE:APP with --path. A function is called with these arguments, again and again, by
    as many callers as a setting has slots and as many that wait: give it arguments that are typical, and nothing that
    it must not do many times. A VALUE is read as JSON where it is JSON, else as text.
    """
    lab.check_places(given)
    if given["pool"] is not None and not POOL.fullmatch(given["pool"]):
        raise click.UsageError(f"--pool is {given['pool']!r}; allowed are letters, digits, _ and -")
    work = lab.work_of(target, arguments, given)
    if not work.profiles:
        raise click.UsageError(f"{target}: a server that runs has no setting to try; `clutch bench` measures it")
    goal = goal_of(given["slo"], given["memory"], lab.load_of(given, work, given["seed"]))
    seconds = lab.seconds_of(given["budget"], "--budget")
    if seconds < BUDGET_SECONDS_MIN:
        raise click.UsageError(
            f"--budget is {given['budget']!r}; {BUDGET_SECONDS_MIN:.0f} s is the least that can tell anything"
        )
    lab.tell(line())
    found = tune(work, goal, usable_cpus(), seconds, lab.tell, given["seed"], given["threads_ok"])
    report, place = tune_report(work, found), place_of(work, given["pool"])
    report.notes += conclusion(work, found, place)
    click.echo(lab.as_json(report) if as_json else report.as_text())
    lab.write_page(report, given["html"])
    if given["write"] and not found.is_sure:
        raise ClutchError(
            "nothing is written: too few settings could be measured in this time; give it more (--budget)"
        )
    if given["write"]:
        write(Path("clutch.toml"), place, found.winner)
        lab.tell(f"written to clutch.toml, [pools.{place.pool}]")


def goal_of(slo: str | None, memory: str | None, load: Load | None) -> Goal:
    """Raises UsageError."""
    percentile, latency, most = "99", None, None
    if slo is not None:
        if (read := OBJECTIVE.fullmatch(slo)) is None:
            raise click.UsageError(
                f'--slo is {slo!r}; allowed is such as "p99 < 50ms", with p50, p75, p90, p95, p99 or p99.9'
            )
        percentile, latency = read[1], lab.seconds_of(read[2], "--slo")
    if memory is not None:
        try:
            most = int(SIZE.parse(memory))
        except ValueError:
            raise click.UsageError(f"--memory is {memory!r}; allowed: {SIZE.allowed}") from None
    return Goal(percentile, latency, most, load)


def conclusion(work: Work, found: Found, place: Place) -> list[str]:
    """The winner, how sure it is, and what to write where."""
    rounds = len(found.played.get(found.winner, ()))
    alike = [str(setting) for setting, ratio in found.ratios.items() if ratio.verdict is Verdict.ALIKE]
    others = f"not distinguishable from it in {rounds} rounds: {', '.join(alike)}" if alike else "no other came near"
    if not found.played:
        others = "not played against others"
    elif not found.ratios:
        others = "no other was left to play against it"
    deployed = "" if found.deployed is None else f"; started again it reached {found.deployed:.0%} of its rate"
    return [
        f"{'best' if found.is_sure else 'the best that was measured'}: {found.winner} ({others}{deployed})",
        "",
        typed(work, found.winner),
        "",
        *place.text(found.winner).splitlines(),
    ]


def typed(work: Work, setting: Setting) -> str:
    """What to type to have it."""
    if isinstance(work, App | Handler):
        tcp = "--tcp " if isinstance(work, Handler) else ""
        return f"clutch serve {tcp}{work.target} {' '.join(serve_flags(setting))}"
    assert isinstance(work, Calls | JobRun)
    if isinstance(work, JobRun):
        return f"clutch work {work.module} {setting.flags()}"
    return (
        f"clutch.Pool({work.module!r}, {', '.join(f'{name}={value!r}' for name, value in setting.options().items())})"
    )
