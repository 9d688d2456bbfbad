"""`clutch tune`: find the setting of a pool that is best for some work, by measuring."""

from __future__ import annotations

import contextlib
import re
import sys
from pathlib import Path
from typing import Any

import click

from clutch.cli import lab
from clutch.cli.flags import as_json as json_flag
from clutch.cli.kinds import EVERY, PRESET, URL
from clutch.config.limits import usable_cpus
from clutch.config.values import DURATION, SIZE
from clutch.errors import ClutchError
from clutch.lab.comparing import Verdict
from clutch.lab.load import Load
from clutch.lab.machine import line
from clutch.lab.outcome import Found, Goal
from clutch.lab.report import WARNING
from clutch.lab.setting import Setting
from clutch.lab.shown import tune_report
from clutch.lab.tuning import tune
from clutch.lab.work import App, Calls, Handler, JobRun, Work, serve_flags
from clutch.lab.writing import Place, place_in, place_of, write

MEASURED = EVERY - {URL, PRESET}
BUDGET_SECONDS_MIN = 10.0
CONFIG = Path("clutch.toml")
POOL = re.compile(r"[A-Za-z0-9_-]+")
OBJECTIVE = re.compile(r"\s*p(50|75|90|95|99|99\.9)\s*<=?\s*(\d.*?)\s*")
NEARLY = re.compile(r"\s*[pP]?(50|75|90|95|99|99\.9)[\s<=:]*(\d+(?:\.\d+)?)\s*(ms|s|m|h)?\s*")
"""An objective without the p, the < or the unit, which is taken for milliseconds."""


@click.command(
    "tune", cls=lab.LabCommand, short_help="Find the best profile and size for a function or an app, by measuring."
)
@lab.work_arguments("pid")
@click.option("--slo", metavar="TEXT", help='Objective, such as "p99 < 50ms", with no call waiting for a slot.')
@click.option("--memory", metavar="SIZE", help="The most memory of all processes together, such as 2GB.")
@click.option("--budget", default="1m", show_default=True, metavar="DURATION", help="Time to measure.")
@click.option("--threads-ok", is_flag=True, help="On Python without a GIL: try `thread`, as the code is thread-safe.")
@click.option("--seed", type=int, default=0, help="Seed of the order in which settings are measured.")
@click.option("--write", is_flag=True, help="Write the winner into clutch.toml.")
@click.option("--pool", help="Name of the pool that is written. [default: main; of an app web, of a handler tcp]")
@click.option("--html", type=click.Path(path_type=Path), help="Write a report with charts to this file.")
@json_flag
@click.pass_context
def command(context: click.Context, target: str, arguments: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Measure work under every profile that may suit it, and say which setting to run.

    TARGET is MODULE:FUNCTION, or MODULE:APP with --path. A function is called with these arguments, again and again, by
    as many callers as a setting has slots and as many that wait: give it arguments that are typical, and nothing that
    it must not do many times. A VALUE is read as JSON where it is JSON, else as text.
    """
    lab.check_places(given)
    if given["pool"] is not None and not POOL.fullmatch(given["pool"]):
        raise click.UsageError(f"--pool is {given['pool']!r}; allowed are letters, digits, _ and -")
    work = lab.work_of(context, MEASURED, target, arguments, given)
    goal = goal_of(given["slo"], given["memory"], lab.load_of(given, work, given["seed"]))
    seconds = lab.seconds_of(given["budget"], "--budget")
    if seconds < BUDGET_SECONDS_MIN:
        raise click.UsageError(
            f"--budget is {given['budget']!r}; {BUDGET_SECONDS_MIN:.0f} s is the least that can tell anything"
        )
    if given["threads_ok"] and getattr(sys, "_is_gil_enabled", lambda: True)():
        lab.tell(f"{WARNING}--threads-ok has no effect: this Python has a GIL, and `thread` is tried anyway")
    # Before anything is measured it shows whether that can be written.
    place = place_in(CONFIG, work, given["pool"]) if given["write"] else place_of(work, given["pool"])
    lab.tell(line())
    found = tune(work, goal, usable_cpus(), seconds, lab.tell, given["seed"], given["threads_ok"])
    report = tune_report(work, found)
    report.notes += conclusion(work, found, place)
    click.echo(lab.as_json(report) if as_json else report.as_text())
    lab.write_page(report, given["html"])
    if given["write"] and not found.is_sure:
        raise ClutchError("nothing is written, as it is not sure that it is the best: see the warnings")
    if given["write"]:
        write(CONFIG, place, found.winner)
        lab.tell(f"written to clutch.toml, [pools.{place.pool}]")


def goal_of(slo: str | None, memory: str | None, load: Load | None) -> Goal:
    """Raises UsageError."""
    percentile, latency, most = "99", None, None
    if slo is not None:
        percentile, latency = objective_of(slo)
    if memory is not None:
        try:
            most = int(SIZE.parse(memory))
        except ValueError:
            near = f", without a unit: write {memory}MB or {memory}GB" if memory.isdecimal() else ""
            raise click.UsageError(f"--memory is {memory!r}{near}; allowed are 512MB, 2GB and the like") from None
    return Goal(percentile, latency, most, load)


def objective_of(text: str) -> tuple[str, float]:
    """Returns the percentile and its seconds. Raises UsageError."""
    with contextlib.suppress(ValueError):
        if read := OBJECTIVE.fullmatch(text):
            return read[1], float(DURATION.parse(read[2]))
    near = NEARLY.fullmatch(text)
    write = f': write "p{near[1]} < {near[2]}{near[3] or "ms"}"' if near else ""
    allowed = 'allowed is such as "p99 < 50ms", with p50, p75, p90, p95, p99 or p99.9'
    raise click.UsageError(f"--slo is {text!r}{write}; {allowed}")


def conclusion(work: Work, found: Found, place: Place) -> list[str]:
    """The winner, how sure it is, and what to write where."""
    rounds = len(found.played.get(found.winner, ()))
    rivals = [setting for setting in found.ratios if setting not in found.missed]
    alike = [str(setting) for setting in rivals if found.ratios[setting].verdict is Verdict.ALIKE]
    others = f"not distinguishable from it in {rounds} rounds: {', '.join(alike)}" if alike else "no other came near"
    if not found.played:
        others = "not played against others"
    elif not rivals:
        others = "no other keeps to the objective" if found.missed else "no other was left to play against it"
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
