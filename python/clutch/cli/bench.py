"""`clutch bench`: measure work under one setting of a pool or a grid of them, a server that runs, or a preset."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from clutch.cli import lab
from clutch.cli.flags import as_json as json_flag
from clutch.cli.kinds import EVERY, PRESET, is_typed, refuse_idle
from clutch.config.limits import usable_cpus
from clutch.errors import ClutchError
from clutch.lab import benching, presets
from clutch.lab.benching import Bench, Change, OtherFile
from clutch.lab.comparing import ROUNDS_MIN, Verdict
from clutch.lab.contender import Contender, contender_of
from clutch.lab.load import Load
from clutch.lab.machine import facts, line, packages
from clutch.lab.report import WARNING
from clutch.lab.setting import PROFILES, grid, profiles_of, sizes_of
from clutch.lab.shown import bench_report
from clutch.lab.work import App, Calls, Handler, JobRun, Request, Url, Work

WORSE_EXIT_CODE, UNTOLD_EXIT_CODE = 3, 4
SIZES_OF = {"threads": ("thread",), "tasks": ("async", "greenlet")}
"""Sizes that some profiles alone have."""
BODY_SHOWN_MAX = 40


@click.command("bench", cls=lab.LabCommand, short_help="Measure a function, app or server under one or many settings.")
@lab.work_arguments()
@click.option("--profile", metavar="NAMES", help=f"Of {', '.join(PROFILES)}. [default: process; async for ASGI apps]")
@click.option("-w", "--workers", default="2", show_default=True, metavar="SIZES", help="Such as 2, 1,2,4 or 1..5.")
@click.option(
    "--threads", default="8", show_default=True, metavar="SIZES", help="With --profile thread: threads of a worker."
)
@click.option(
    "--tasks", default="64", show_default=True, metavar="SIZES", help="With async or greenlet: tasks of a worker."
)
@click.option("--rounds", type=click.IntRange(1, 1000), metavar="N", help=lab.ROUNDS_HELP)
@click.option("--seconds", metavar="DURATION", help=lab.SECONDS_HELP)
@click.option("--seed", type=int, default=0, help="Seed of the order in which settings are measured.")
@click.option("--save", type=click.Path(path_type=Path), help="Write all figures to this file.")
@click.option(
    "--beside",
    metavar="TARGET",
    help=f"Measure another TARGET in the same rounds; exit with {WORSE_EXIT_CODE} where the first is worse.",
)
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    help=f"Compare with a file of --save; exit with {WORSE_EXIT_CODE} where a setting is worse.",
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
    lab.check_places(given)
    if target in presets.PRESETS:
        click.echo(of_preset(context, target, arguments, as_json, given))
        return
    work = lab.work_of(context, EVERY, target, arguments, given)
    load = lab.load_of(given, work, given["seed"])
    contenders = contenders_of(context, work, load, given)
    check_rounds(given)
    twins: dict[str, str] = {}
    if given["beside"] is not None:
        others = contenders_of(context, lab.other_of(work, given["beside"]), load, given)
        contenders, twins = paired(target, contenders, given["beside"], others)
    kept = None if given["against"] is None else read(given["against"], contenders)
    seconds = lab.window_of(given["seconds"], work, load)
    lab.tell(line())
    bench = Bench(str(work), work.unit, seconds, facts(), packages=packages(), asked=asked_of(work, load))
    if kept is not None and bench.asked != kept.asked:
        raise ClutchError(f"--against {given['against']}: it has figures of {kept.asked}, not of {bench.asked}")
    starts = benching.STARTS if given["save"] or given["against"] or given["beside"] else 1
    recycled = given["recycling"]
    benching.measure(bench, contenders, given["rounds"], lab.tell, given["seed"], is_recycled=recycled, starts=starts)
    ratios = benching.beside(bench, twins) if kept is None else benching.against(bench, kept)
    report = bench_report(bench, ratios, usable_cpus(), to=given["beside"] or "the saved")
    if kept is not None:
        report.advice += cautions(bench, kept, ratios.values())
    click.echo(lab.as_json(report) if as_json else report.as_text())
    if given["save"] is not None:
        lab.write(given["save"], json.dumps(bench.as_data()), "--save")
    lab.write_page(report, given["html"])
    if any(ratio.verdict is Verdict.WORSE for ratio in ratios.values()):
        context.exit(WORSE_EXIT_CODE)
    if any(not change.told for change in ratios.values()):
        context.exit(UNTOLD_EXIT_CODE)


def of_preset(
    context: click.Context, name: str, arguments: tuple[str, ...], as_json: bool, given: dict[str, Any]
) -> str:
    """Measure a preset, and return what is to be printed. Raises UsageError for options that it does not take."""
    refuse_idle(context, PRESET)
    if arguments:
        raise click.UsageError(f"{' '.join(arguments)}: {name} is a preset, which takes no arguments")
    try:
        report = presets.run(name, given["scale"], lab.tell)
    except KeyboardInterrupt:
        raise lab.Interrupted("interrupted: a preset shows its figures when all are measured") from None
    lab.write_page(report, given["html"])
    return json.dumps(report.as_data()) if as_json else report.as_text()


def check_rounds(given: dict[str, Any]) -> None:
    """Raises UsageError where a comparison could tell nothing."""
    rounds = given["rounds"]
    if given["against"] is not None and given["beside"] is not None:
        raise click.UsageError("--against and --beside exclude each other: both say what to compare with")
    option = "--against" if given["beside"] is None else "--beside"
    if given[option[2:]] is not None and rounds is not None and rounds < ROUNDS_MIN:
        raise click.UsageError(
            f"--rounds is {rounds}; with {option} allowed are {ROUNDS_MIN} or more, as fewer cannot tell anything"
        )
    if given["save"] is not None:
        lab.warn_of_few(rounds, f"--against will refuse {given['save']}")


def cautions(bench: Bench, kept: Bench, changes: Iterable[Change]) -> list[str]:
    """What makes a comparison with a saved file less than it seems."""
    said = [f"{WARNING}{caution}" for caution in benching.apart_cautions(bench, kept)]
    if any(ratio.rounds < ROUNDS_MIN for change in changes for ratio in change.told):
        said.append(f"{WARNING}fewer than {ROUNDS_MIN} rounds were measured: no verdict is possible")
    return said


def contenders_of(context: click.Context, work: Work, load: Load | None, given: dict[str, Any]) -> list[Contender]:
    """One for each setting of the grid. Raises UsageError or ConfigError."""
    if not work.profiles:
        return [contender_of(work, None, load)]
    usual = "auto" if work.unit == "requests" else "process"
    profiles = [usual] if given["profile"] is None else profiles_of(given["profile"])
    if wrong := [profile for profile in profiles if profile not in (*work.profiles, "auto")]:
        raise click.UsageError(f"--profile {','.join(wrong)}: {work.unit} run under {', '.join(work.profiles)}")
    for name, its in SIZES_OF.items():
        if is_typed(context, name) and not {*its} & {*profiles}:
            raise click.UsageError(f"--{name} has no effect without a profile that has {name}: add --profile {its[0]}")
    sizes = [sizes_of(given[name], f"--{name}") for name in ("workers", "threads", "tasks")]
    found = [contender_of(work, setting, load) for setting in grid(profiles, *sizes)]
    if len(found) == 1 and is_typed(context, "seed") and not given["poisson"]:
        lab.tell(f"{WARNING}--seed has no effect: there is one setting, and no --poisson")
    return found


def paired(
    target: str, ours: Sequence[Contender], other: str, theirs: Sequence[Contender]
) -> tuple[list[Contender], dict[str, str]]:
    """Two targets under the same settings: contenders, with both of a setting side by side, and whose twin is who."""
    first = [replace(one, name=f"{target} {one.name}") for one in ours]
    second = [replace(one, name=f"{other} {one.name}") for one in theirs]
    both = list(zip(first, second, strict=True))
    return [one for pair in both for one in pair], {one.name: twin.name for one, twin in both}


def asked_of(work: Work, load: Load | None) -> str:
    """All that is asked for, in words: figures of a saved file are compared where these are the same."""
    return f"{words_of(work)}; {'the usual load' if load is None else load}"


def words_of(work: Work) -> str:
    match work:
        case Calls(module, name, _, values):
            return f"{module}:{name}{words_of_values(values)}"
        case JobRun(module, name, values, store):
            return f"jobs of {module}:{name}{words_of_values(values)} in {store or 'SQLite'}"
        case App(target, requests):
            return f"{target}, {words_of_requests(requests)}"
        case Url(url, requests):
            return f"{url}, {words_of_requests(requests)}"
        case Handler(target, message):
            return f"{target} over TCP, sent {message.decode('latin-1').encode('unicode_escape').decode()}"
        case _:
            return str(work)


def words_of_values(values: dict[str, Any]) -> str:
    return "".join(f" {name}={json.dumps(value)}" for name, value in values.items())


def words_of_requests(requests: Sequence[Request]) -> str:
    return " and ".join(map(words_of_request, requests))


def words_of_request(request: Request) -> str:
    parts = [f"{request.method} {request.path}", *(f"{name}: {value}" for name, value in request.headers)]
    if request.body is not None:
        parts.append(f"body {words_of_body(request.body)}")
    if request.body_function is not None:
        parts.append(f"bodies of {request.body_function}()")
    return ", ".join([*parts, *([f"weight {request.weight}"] if request.weight != 1 else [])])


def words_of_body(body: bytes) -> str:
    is_short = len(body) <= BODY_SHOWN_MAX and body.isascii() and body.decode("latin-1").isprintable()
    return body.decode("latin-1") if is_short else f"of {len(body):,} bytes (CRC {zlib.crc32(body):08x})"


def read(file: Path, contenders: Sequence[Contender]) -> Bench:
    """Raises ClutchError, also where its rounds of these contenders are too few to tell anything."""
    try:
        data = json.loads(file.read_text())
        kept = Bench.of_data(data)
    except OtherFile as error:
        raise ClutchError(f"--against {file}: {error}") from error
    except OSError as error:
        raise ClutchError(f"--against {file}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ClutchError(f"--against {file}: it is no file of `clutch bench --save`") from error
    if "pairs" in data:
        raise ClutchError(f"--against {file}: it is of `clutch compare`; name a file of `clutch bench --save`")
    few = {name: len(kept.cells[name].rounds) for name in (one.name for one in contenders) if name in kept.cells}
    if few and (least := min(few.values())) < ROUNDS_MIN:
        raise ClutchError(
            f"--against {file}: it has {least} of the {ROUNDS_MIN} rounds that tell anything; "
            f"save it anew, with --rounds {ROUNDS_MIN} or more"
        )
    return kept
