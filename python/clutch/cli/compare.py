"""`clutch compare`: the same work on Clutch and on other pools, servers or job queues, which the lab starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from clutch.cli import lab
from clutch.cli.flags import as_json as json_flag
from clutch.cli.kinds import APP, CALLS, JOBS
from clutch.config.limits import usable_cpus
from clutch.lab.benching import Bench
from clutch.lab.contender import Contender
from clutch.lab.load import Load
from clutch.lab.machine import facts, line
from clutch.lab.machine import packages as own_packages
from clutch.lab.peers import packages, registry
from clutch.lab.peers.comparison import Comparison, clutches, compare
from clutch.lab.peers.seam import Face
from clutch.lab.peers.shown import compare_report, listing
from clutch.lab.report import text_of
from clutch.lab.work import App, Calls, JobRun, Work

MEASURED = frozenset((APP, CALLS, JOBS))


def show_list(context: click.Context, option: click.Parameter, is_asked: bool) -> None:
    if is_asked:
        click.echo(text_of(listing(registry.everyone())))
        context.exit()


@click.command(
    "compare",
    cls=lab.LabCommand,
    short_help="Measure the same work on Clutch and on other pools, servers or job queues.",
)
@lab.work_arguments("tcp", "message", "store", "pid")
@click.option(
    "--peers", default=registry.EVERYONE, show_default=True, metavar="NAMES", help="With commas between them."
)
@click.option(
    "--list", is_flag=True, is_eager=True, expose_value=False, callback=show_list, help="List the peers, and end."
)
@click.option(
    "-w", "--workers", type=click.IntRange(1, 1024), metavar="N", default=2, show_default=True, help="Of each."
)
@click.option("--rounds", type=click.IntRange(1, 1000), metavar="N", help=lab.ROUNDS_HELP)
@click.option("--seconds", metavar="DURATION", help=lab.SECONDS_HELP)
@click.option("--seed", type=int, default=0, help="Seed of the order in which they are measured.")
@click.option("--save", type=click.Path(path_type=Path), help="Write all figures to this file.")
@click.option("--html", type=click.Path(path_type=Path), help="Write a report with charts to this file.")
@json_flag
@click.pass_context
def command(context: click.Context, target: str, arguments: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Measure calls of a function, requests to an app (--path), or jobs (--jobs), on Clutch and on others.

    Each peer is installed from PyPI into a folder of its own, in a cache, and started with its fastest documented
    settings, which are printed; Clutch has its defaults. What cannot be installed or started here is told and left out.
    A VALUE is read as JSON where it is JSON, else as text.
    """
    lab.check_places(given)
    work = lab.work_of(context, MEASURED, target, arguments, given)
    check(work)
    load, workers = lab.load_of(given, work, given["seed"]), given["workers"]
    seconds = lab.window_of(given["seconds"], work, load)
    lab.warn_of_few(given["rounds"], "there will be figures, and no verdict")
    lab.tell(line())
    with_stores = clutches(work, workers, load)
    comparison = Comparison(Bench(str(work), work.unit, seconds, facts(), packages=own_packages()))
    contenders = contenders_of(work, face_of(work, with_stores), workers, load, given["peers"], comparison)
    compare(comparison, with_stores, contenders, given["rounds"], lab.tell, given["seed"])
    report = compare_report(comparison, usable_cpus())
    if given["save"] is not None:
        lab.write(given["save"], lab.as_json(report), "--save")
    lab.write_page(report, given["html"])
    click.echo(lab.as_json(report) if as_json else report.as_text())


def check(work: Work) -> None:
    """Raises UsageError."""
    if isinstance(work, App) and work.target.endswith("()"):
        raise click.UsageError(
            f"{work.target}: not all servers take a factory; write app = {work.target.partition(':')[2]} into a module "
            "of your own, and name that"
        )


def face_of(work: Work, with_stores: dict[str | None, Contender]) -> Face:
    """What peers must be able to do. Which kind an app is shows once Clutch serves it. Raises TrialFailed."""
    if isinstance(work, Calls):
        return "calls"
    if isinstance(work, JobRun):
        return "jobs"
    with with_stores[None].start() as trial:
        return "wsgi" if trial.hello.get("interface") == "wsgi" else "asgi"


def contenders_of(
    work: Work, face: Face, workers: int, load: Load | None, names: str, comparison: Comparison
) -> dict[str, Contender]:
    """Of the peers that can run here, which are installed. Why the others cannot is told. Raises ConfigError."""
    found = {}
    for peer in registry.chosen(face, names):
        try:
            folder = packages.ready(peer, lab.tell)
        except packages.NotInstalled as error:
            comparison.left_out[peer.name] = str(error)
            lab.tell(f"{peer.name} is left out: {error}")
        else:
            found[peer.name] = peer.contender(work, face, workers, folder, load)
            comparison.peers.append(peer)
            comparison.versions[peer.name] = packages.versions_of(peer)
    return found
