"""`clutch bench`: measure work under one setting of a pool or a grid of them, a server that runs, or a preset."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from clutch.cli import lab
from clutch.cli.flags import as_json as json_flag
from clutch.config.limits import usable_cpus
from clutch.errors import ClutchError
from clutch.lab import benching, presets
from clutch.lab.benching import Bench
from clutch.lab.comparing import ROUNDS_MIN, Verdict
from clutch.lab.contender import Contender, contender_of
from clutch.lab.load import Load
from clutch.lab.machine import facts, line, packages
from clutch.lab.report import WARNING
from clutch.lab.setting import PROFILES, grid, profiles_of, sizes_of
from clutch.lab.shown import bench_report
from clutch.lab.work import Work

WORSE_EXIT_CODE = 3


@click.command("bench", short_help="Measure a function, app or server under one or many settings.")
@lab.work_arguments
@click.option("--profile", metavar="NAMES", help=f"Of {', '.join(PROFILES)}. [default: process; async for ASGI apps]")
@click.option("-w", "--workers", default="2", show_default=True, metavar="SIZES", help="Such as 2, 1,2,4 or 1..5.")
@click.option("--threads", default="8", show_default=True, metavar="SIZES", help="Threads of a worker, of `thread`.")
@click.option("--tasks", default="64", show_default=True, metavar="SIZES", help="Tasks, of `async` and `greenlet`.")
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
@click.option(
    "--scale", type=click.Choice(["small", "full"]), default="small", show_default=True, help="Size of a preset."
)
@click.option("--recycling", is_flag=True, help="Of calls: replace a worker under load, too, and show what it costs.")
@click.option("--html", type=click.Path(path_type=Path), help="Write a report with charts to this file.")
@json_flag
@click.pass_context
def command(context: click.Context, target: str, arguments: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Measure calls of a function with these arguments, requests to an app or a server, answers over TCP, or jobs.

    TARGET is MODULE:FUNCTION; MODULE:APP with --path; the URL of a server that runs already; or a preset, one of
    profiles, grid, enqueue, tcp, drain. Each setting has a pool
    of its own, started afresh; rounds go through all of them in turn. A VALUE is read as JSON where it is JSON, else as
    text.
    """
    if target in presets.PRESETS:
        report = presets.run(target, given["scale"], lab.tell)
        lab.write_page(report, given["html"])
        click.echo(json.dumps(report.as_data()) if as_json else report.as_text())
        return
    lab.check_places(given)
    work = lab.work_of(target, arguments, given)
    load = lab.load_of(given, work, given["seed"])
    contenders = contenders_of(work, load, given)
    kept = None if given["against"] is None else read(given["against"])
    seconds = lab.seconds_of(given["seconds"], "--seconds")
    lab.tell(line())
    asked = f"{work!r}, {'as usual' if load is None else load}"
    bench = Bench(str(work), work.unit, seconds, facts(), packages=packages(), asked=asked)
    if kept is not None:
        benching.refuse_other(bench, kept)
    benching.measure(bench, contenders, given["rounds"], lab.tell, given["seed"], is_recycled=given["recycling"])
    if not bench.cells:
        raise ClutchError("interrupted before a round was whole: there is nothing to show, and nothing was saved")
    ratios = {} if kept is None else benching.against(bench, kept)
    report = bench_report(bench, ratios, usable_cpus())
    if kept is not None and kept.machine.get("Python") != bench.machine.get("Python"):
        report.advice.append(f"{WARNING}the saved figures are of {kept.machine.get('Python')}")
    click.echo(lab.as_json(report) if as_json else report.as_text())
    if given["save"] is not None:
        lab.write(given["save"], json.dumps(bench.as_data()), "--save")
    lab.write_page(report, given["html"])
    if any(ratio.verdict is Verdict.WORSE for ratio in ratios.values()):
        context.exit(WORSE_EXIT_CODE)


def contenders_of(work: Work, load: Load | None, given: dict[str, Any]) -> list[Contender]:
    """One for each setting of the grid. Raises UsageError or ConfigError."""
    if not work.profiles:
        return [contender_of(work, None, load)]
    usual = "auto" if work.unit == "requests" else "process"
    profiles = [usual] if given["profile"] is None else profiles_of(given["profile"])
    if wrong := [profile for profile in profiles if profile not in (*work.profiles, "auto")]:
        raise click.UsageError(f"--profile {','.join(wrong)}: {work.unit} run under {', '.join(work.profiles)}")
    sizes = [sizes_of(given[name], f"--{name}") for name in ("workers", "threads", "tasks")]
    return [contender_of(work, setting, load) for setting in grid(profiles, *sizes)]


def read(file: Path) -> Bench:
    """Raises ClutchError."""
    try:
        return Bench.of_data(json.loads(file.read_text()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ClutchError(
            f"{file} cannot be read as a file of `clutch bench --save`: {type(error).__name__}: {error}"
        ) from error
