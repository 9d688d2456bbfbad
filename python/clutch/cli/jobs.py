"""`clutch jobs`: looks at the jobs of a store, and changes them. It needs no running dispatcher."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from clutch import _core
from clutch._dispatcher.schedules import next_ticks
from clutch._jobs.records import ENDS, STATES
from clutch.cli.flags import as_json
from clutch.cli.habits import CommandWithHabits
from clutch.cli.habits_of_queues import COMMANDS, OF_JOBS
from clutch.cli.jobs_arguments import check_arguments, json_arguments, tool_of, words
from clutch.cli.jobs_shown import job_row, moment, print_json, print_table, queue_row, runner_row, served
from clutch.cli.stores import STORE_HELP, url_of
from clutch.cli.table import printable
from clutch.config.layers import nearest
from clutch.errors import ClutchError, ConfigError
from clutch.jobs import Job, JobId, Jobs
from clutch.tools import U32_MAX

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

STOPPING = "is told to stop"
"""A running job is not cancelled before it has ended."""


def existing(_context: click.Context, _parameter: click.Parameter, given: str | None) -> Jobs:
    return existing_store(given)


def existing_store(given: str | None) -> Jobs:
    """Returns the store. To look does not create a file."""
    url = url_of(given)
    jobs = Jobs(url)
    file = _core.JobStore.file(jobs.url)
    if file is not None and not Path(file).exists():
        raise ClutchError(
            f"--store {url}: there is no file {Path(file).absolute()}; a path after three slashes is relative to the "
            "working folder, after four it is absolute. `clutch work` and the first enqueue() make the file"
        )
    return jobs


store = click.option(
    "--store",
    "jobs",
    envvar="CLUTCH_STORE",
    show_envvar=True,
    metavar="URL|NAME",
    callback=existing,
    help=STORE_HELP,
)


def filters(function: F) -> F:
    """Adds the options that select jobs."""
    for option in (
        click.option("--tag", help="Only jobs with this tag."),
        click.option("--tool", help="Only jobs of this tool."),
        click.option("--queue", help="Only jobs of this queue."),
        click.option("--state", type=click.Choice(STATES), help="Only jobs in this state."),
    ):
        function = option(function)
    return function


class JobsCommand(CommandWithHabits):
    habits = OF_JOBS


class JobsGroup(click.Group):
    command_class = JobsCommand

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args[0] not in self.commands and (meant := COMMANDS.get(args[0])) is not None:
            ctx.fail(f"no command '{args[0]}'; did you mean: clutch {meant}")
        return super().resolve_command(ctx, args)


@click.group("jobs", cls=JobsGroup, short_help="Inspect and change the jobs of a store.")
def command() -> None:
    """Inspect and change the jobs in a store. No server needs to run."""


@command.command("stats")
@store
@as_json
def stats(jobs: Jobs, as_json: bool) -> None:
    """Show the queues with the number of jobs in each state."""
    queues = jobs.stats().values()
    if as_json:
        print_json(list(queues))
        return
    heads = ("queue", *STATES, "oldest", "")
    print_table([heads, *(queue_row(queue) for queue in queues)])


@command.command("runners")
@store
@click.option("--once", is_flag=True, help="Look once: tells who there is, not who lives.")
@as_json
def runners(jobs: Jobs, as_json: bool, once: bool) -> None:
    """Show who runs the jobs, how many each has claimed, and whether it lives.

    A runner that lives renews its lease; this watches until each has, or has not for half of its lease and a second
    (16 s by default; --once does not watch). Without one that is alive, nobody works on the store, though jobs are
    still `running`.
    """
    if not (once or as_json):
        click.echo("watching until each has renewed its lease, or has not for too long …", err=True)
    found = jobs.runners(0 if once else None)
    if as_json:
        print_json(found)
        return
    if found:
        print_table([("host", "pid", "does", "lease", ""), *map(runner_row, found)])
    if (silence := served(found, jobs.stats().values())) is not None:
        click.echo(silence)


@command.command("list")
@store
@filters
@click.option("--before", metavar="ID", help="Only jobs older than this one: the next page.")
@click.option("--limit", default=50, show_default=True, help="Maximum number of jobs.")
@as_json
def list_(jobs: Jobs, as_json: bool, **wanted: Any) -> None:
    """List jobs, the newest first."""
    show_list(jobs, as_json, wanted)


@command.command("dead")
@store
@click.option("--queue", help="Only jobs of this queue.")
@click.option("--limit", default=50, show_default=True, help="Maximum number of jobs.")
@as_json
def dead(jobs: Jobs, as_json: bool, **wanted: Any) -> None:
    """List jobs that have failed for good, the newest first, with their last error."""
    show_list(jobs, as_json, {**wanted, "state": "dead"})


def show_list(jobs: Jobs, as_json: bool, wanted: dict[str, Any]) -> None:
    found = checked(lambda: jobs.list(**wanted))
    if as_json:
        print_json(found)
    elif not found:
        click.echo(f"no such jobs{if_unknown(jobs, wanted)}", err=True)
    else:
        print_table([("job", "state", "queue", "tool", "attempt", "age", ""), *map(job_row, found)], fits=True)


def if_unknown(jobs: Jobs, wanted: dict[str, Any]) -> str:
    """Names the queues where the one that was asked for is none of them."""
    queue = wanted.get("queue")
    return "" if queue is None else if_new(jobs, queue).replace("; it has", f": queue {queue} has", 1)


@command.command("show")
@store
@click.argument("job")
@as_json
def show(jobs: Jobs, job: str, as_json: bool) -> None:
    """Show everything about one job, with the tracebacks of its errors."""
    found = checked(lambda: jobs.get(job))
    if found is None:
        raise ClutchError(f"there is no job {job}")
    if as_json:
        print_json(found)
        return
    for field in dataclasses.fields(found):
        value = getattr(found, field.name)
        # Of a job alone nothing is said of others.
        is_said = bool(value) if field.name in ("after_count", "waits_for") else value not in (None, (), {})
        if field.name != "errors" and is_said:
            text = (
                value
                if isinstance(value, str)
                else moment(value)
                if isinstance(value, datetime)
                else json.dumps(value, ensure_ascii=False)
            )
            click.echo(f"{field.name:13} {printable(text)}")
    for error in found.errors:
        head = f"attempt {error.attempt}, {error.at:%Y-%m-%d %H:%M:%S} UTC, {error.kind}: {error.message}"
        click.echo(printable(f"\n{head}\n{error.traceback.rstrip() or '(no traceback)'}", kept="\n\t"))


def change(name: str, done: str, all_done: str, doc: str, *more: Callable[[Any], Any]) -> None:
    """A command that changes jobs: those of some ids, or all that match."""

    def run(
        jobs: Jobs,
        ids: tuple[str, ...],
        is_all: bool,
        yes: bool,
        as_json: bool,
        arguments: str | None = None,
        target: str | None = None,
        **wanted: str | None,
    ) -> None:
        chosen = {option: value for option, value in wanted.items() if value is not None}
        if sum((bool(ids), bool(chosen), is_all)) != 1:
            raise click.UsageError(
                f"name the jobs to {name} by their ids, or choose them by --state, --queue, --tool and --tag, or --all"
            )
        if target is not None and arguments is None:
            raise click.UsageError("--target checks --args: give these, too")
        if arguments is not None:
            if len(ids) != 1:
                raise click.UsageError("--args belong to one job: name it by its id")
            given = json_arguments(arguments)
            change_named(jobs, name, done, ids, as_json, lambda job: retry_with(jobs, job, given, target))
        elif ids:
            change_named(jobs, name, done, ids, as_json)
        else:
            change_chosen(jobs, name, all_done, chosen, yes, as_json)

    run.__doc__ = doc
    for option in (
        click.option("--yes", is_flag=True, help="Do not ask before jobs are changed that were not named by ids."),
        click.option("--all", "is_all", is_flag=True, help="All jobs of the store."),
        filters,
        click.argument("ids", nargs=-1, metavar="[JOB]…"),
        as_json,
        store,
        *more,
    ):
        run = option(run)
    command.command(name)(run)


MEANT: dict[str, Callable[[Job], bool]] = {
    "retry": lambda job: job.state == "dead" or (job.state == "scheduled" and bool(job.errors)),
    "cancel": lambda job: job.state not in ENDS,
    "delete": lambda job: job.state != "running",
}
"""Jobs that a change applies to, unless they are selected by state: completed jobs do not run again."""


def changed(jobs: Jobs, name: str, ids: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Each job, once it is changed, and whether there was something to change."""
    return ((job, getattr(jobs, name)(job)) for job in ids)


def retry_with(jobs: Jobs, job: str, given: Any, target: str | None) -> bool:
    found = checked(lambda: jobs.get(job))
    if found is None:
        return False
    unchecked = check_arguments(found, given, target, _core.JobStore.offers(jobs.url)["keywords"])
    is_changed = jobs.retry(job, arguments=given)
    if is_changed and unchecked is not None:
        click.echo(f"note: {unchecked}", err=True)
    return is_changed


def print_changed(found: dict[str, bool]) -> None:
    print_json({"changed": [job for job in found if found[job]], "unchanged": [job for job in found if not found[job]]})


def change_named(
    jobs: Jobs,
    name: str,
    done: str,
    ids: Iterable[str],
    as_json: bool,
    act: Callable[[str], bool] | None = None,
) -> None:
    found = {}
    acting: Callable[[str], bool] = act or getattr(jobs, name)
    for job in ids:
        found[job] = is_changed = checked(partial(acting, job))
        if is_changed and not as_json:
            click.echo(f"job {job} {STOPPING if name == 'cancel' and is_running(jobs, job) else done}")
    if as_json:
        print_changed(found)
    if missed := [job for job in found if not found[job]]:
        raise ClutchError(f"nothing to {name}: {', '.join(why_unchanged(jobs, name, job) for job in missed)}")


def is_running(jobs: Jobs, job: str) -> bool:
    found = jobs.get(job)
    return found is not None and found.state == "running"


def why_unchanged(jobs: Jobs, name: str, job: str) -> str:
    found = jobs.get(job)
    if found is None:
        return f"there is no job {job}"
    holder = holder_of_key(jobs, found) if name == "retry" and found.state in ENDS else None
    held = "" if holder is None else f", and its unique key belongs to job {holder.id}, which is {holder.state}"
    return f"job {job} is {found.state}{held}"


def holder_of_key(jobs: Jobs, job: Job) -> Job | None:
    """The job that is to run for the unique key of another one, which cannot run meanwhile."""
    if job.unique is None:
        return None
    others = (other for other in jobs.each() if other.unique == job.unique)
    return next((other for other in others if other.id != job.id and other.state not in ENDS), None)


def change_chosen(jobs: Jobs, name: str, done: str, chosen: dict[str, str], yes: bool, as_json: bool) -> None:
    is_meant = MEANT[name] if "state" not in chosen else lambda _: True
    states = checked(lambda: {job.id: job.state for job in jobs.each(**chosen) if is_meant(job)})
    ids = list(states)
    if ids and not yes:
        what = ", ".join(f"{option} {value}" for option, value in chosen.items()) or "all of the store"
        counts = ", ".join(f"{count} {state}" for state, count in sorted(Counter(states.values()).items()))
        confirm(f"{name} {len(ids)} jobs ({what}): {counts}?")
    found = dict(changed(jobs, name, ids))
    if as_json:
        print_changed(found)
        return
    count = sum(found.values())
    missed = [job for job in found if not found[job]]
    left = f"; nothing to {name} of {len(missed)}: {why_unchanged(jobs, name, missed[0])}" if missed else ""
    click.echo(f"{count} jobs {done}{left}{'' if ids else if_unknown(jobs, chosen)}")


def confirm(question: str) -> None:
    try:
        is_meant = click.confirm(question, err=True)
    except click.Abort:
        raise click.UsageError("nobody answered, and nothing was changed; --yes is the answer of scripts") from None
    if not is_meant:
        raise click.Abort


RETRY = """Run jobs once more, at once: dead ones, or those that wait for their time or for other jobs.

Without ids and --state: those that have failed."""
OTHER_ARGUMENTS = click.option(
    "--args", "arguments", metavar="JSON", help="""Run one job with these arguments: '["ann"]' or '{"to": "ann"}'."""
)
CHECKED_BY = click.option(
    "--target",
    metavar="MODULE",
    help="Check --args by the type hints of the tool in this module. [default: the targets of the nearest config]",
)
change("retry", "runs again", "run again", RETRY, CHECKED_BY, OTHER_ARGUMENTS)
change("cancel", "cancelled", "cancelled", "Cancel jobs. Those that run are told to stop.")
change("delete", "deleted", "deleted", "Delete jobs that do not run.")


@command.command("enqueue")
@store
@click.argument("tool")
@click.argument("arguments", nargs=-1, metavar="[VALUE...|NAME=VALUE...]")
@click.option("--args", "given", metavar="JSON", help="""All arguments: '["ann"]' or '{"to": "ann"}'.""")
@click.option("--queue", help="Name of the queue.")
@click.option("--priority", type=click.IntRange(-9, 9), help="Larger runs first.")
@click.option("--in", "in_", metavar="TIME", help="Delay until the job is due.")
@click.option("--retry", type=click.IntRange(0), help="Maximum number of retries.")
@click.option("--result", metavar="TIME", help="Retention of the result.")
@as_json
def enqueue(
    jobs: Jobs, tool: str, arguments: tuple[str, ...], given: str | None, as_json: bool, **options: Any
) -> None:
    """Enqueue a job, to try a tool.

    TOOL is the name of a tool, or MODULE:TOOL: that module is imported, the arguments are checked by the tool's type
    hints, and options that are not given are those of its decorator.

    A VALUE is read as JSON where it is JSON, else as text: 7, ann@example.org, language=de, tags='["a"]'.
    """
    if given is not None and arguments:
        raise click.UsageError("give either VALUEs or --args, not both")
    call = json_arguments(given) if given is not None else words(arguments)
    chosen = {name: value for name, value in options.items() if value is not None}
    # Not `enqueue`, for which a keyword may be an option.
    (job,) = checked(lambda: jobs.options(**chosen).enqueue_many(tool_of(tool), [call]))
    if as_json:
        print_json({"job": job, "is_new": job.is_new})
    else:
        click.echo(f"job {job} enqueued" if job.is_new else f"job {job} exists already: its unique key is taken")


@command.command("pause")
@store
@click.argument("queue")
@as_json
def pause(jobs: Jobs, queue: str, as_json: bool) -> None:
    """Take nothing from a queue any more, by any runner. What runs goes on.

    A queue without jobs is paused as well, before its first one.
    """
    new = if_new(jobs, queue)
    checked(lambda: jobs.pause(queue))
    say_of_queue(queue, f"queue {queue} paused{new}", as_json, is_paused=True)


@command.command("resume")
@store
@click.argument("queue")
@as_json
def resume(jobs: Jobs, queue: str, as_json: bool) -> None:
    """End the pause of a queue."""
    new = if_new(jobs, queue)
    known = jobs.stats().get(queue)
    checked(lambda: jobs.resume(queue))
    done = "resumed" if known is not None and known.is_paused else "was not paused"
    say_of_queue(queue, f"queue {queue} {done}{new}", as_json, is_paused=False)


def if_new(jobs: Jobs, queue: str) -> str:
    """A queue may be paused or limited before its first job; more often its name is misspelt."""
    busy = [known.name for known in jobs.stats().values() if any(getattr(known, state) for state in STATES)]
    if queue in busy:
        return ""
    near = nearest(queue, busy)
    meant = f"; did you mean {near}?" if near else f"; queues with jobs: {', '.join(busy) or 'none'}"
    return f"; it has no jobs{meant}"


class Most(click.ParamType):
    name = "whole number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value)
        if re.fullmatch(r"[0-9]{1,10}", text) and int(text) <= U32_MAX:
            return int(text)
        raise click.UsageError(
            f"MOST {text!r}: allowed are whole numbers from 0 to {U32_MAX:,}; 0 runs nothing, --none removes the limits"
        )


@command.command("limit")
@store
@click.argument("queue")
@click.argument("most", type=Most(), required=False)
@click.option("--rate", metavar="N/TIME", help="How many jobs may begin in a time: 10/s, 100/m, 5/30s.")
@click.option("--none", "is_none", is_flag=True, help="Remove both limits.")
@as_json
def limit(jobs: Jobs, queue: str, most: int | None, rate: str | None, is_none: bool, as_json: bool) -> None:
    """Run at most MOST jobs of a queue at a time, and begin as many as --rate says, over all runners.

    It replaces both limits: the one that is not given is removed. `clutch jobs stats` shows them.
    """
    if (most is None and rate is None) != is_none:
        raise click.UsageError("give MOST, --rate or both; or --none to remove the limits, without these")
    new = if_new(jobs, queue)
    checked(lambda: jobs.limit(queue, most, rate=rate))
    limits = [f"at most {most} at a time" + ", so nothing runs" * (most == 0)] if most is not None else []
    limits += [f"at most {rate}"] if rate is not None else []
    say_of_queue(
        queue, f"queue {queue}: " + (", ".join(limits) or "no limit") + new, as_json, running_max=most, rate=rate
    )


def say_of_queue(queue: str, text: str, as_json: bool, **changed: Any) -> None:
    """Reports a change of a queue; in JSON by the names of `stats`."""
    if as_json:
        print_json({"name": queue, **changed})
    else:
        click.echo(text)


OF_ONE_PROCESS = "those that `clutch work --set 'cron.…'` was given are known to that process alone, and in its log"
CRON_CHANGES: dict[str, tuple[Callable[[Jobs, str], object], str]] = {
    "pause": (Jobs.pause_schedule, "paused"),
    "resume": (Jobs.resume_schedule, "resumed"),
    "run": (Jobs.run_schedule, "enqueued"),
    "delete": (Jobs.unschedule, "deleted"),
}


@command.command("cron")
@click.argument("config", required=False, type=click.Path(dir_okay=False), envvar="CLUTCH_CONFIG")
@click.option("--store", envvar="CLUTCH_STORE", show_envvar=True, metavar="URL|NAME", help=STORE_HELP)
@click.option("--pause", metavar="NAME", help="Pause a schedule that the store keeps.")
@click.option("--resume", metavar="NAME", help="Resume it with its next tick.")
@click.option("--run", metavar="NAME", help="Enqueue its job now, beside its ticks.")
@click.option("--delete", metavar="NAME", help="Delete it. Jobs that it has enqueued stay.")
@as_json
def cron(config: str | None, store: str | None, as_json: bool, **changes: str | None) -> None:
    """List periodic jobs, each with its next tick.

    Those of CONFIG (default: the nearest clutch.toml), and those that its stores keep, or --store.

    `clutch jobs list --tag cron:NAME` lists the jobs of one.
    """
    given = {change: name for change, name in changes.items() if name is not None}
    if len(given) > 1:
        raise click.UsageError("give one of --pause, --resume, --run and --delete")
    if given:
        change_schedule(store, *next(iter(given.items())), as_json)
        return
    rows = [*configured(config, store), *kept(config, store)]
    if as_json:
        print_json([values for values, _ in rows])
    elif not rows:
        click.echo(f"no periodic jobs; {OF_ONE_PROCESS}", err=True)
    else:
        heads = ("name", "when", "tool", "queue", "store", "from", "next", "")
        print_table([heads, *(row for _, row in rows)])


def change_schedule(store: str | None, change: str, name: str, as_json: bool) -> None:
    jobs = existing_store(store)
    act, done = CRON_CHANGES[change]
    told = checked(lambda: act(jobs, name))
    if not told:
        known = ", ".join(one.name for one in jobs.schedules()) or "none"
        raise ClutchError(
            f"--{change} {name}: the store keeps no schedule of this name; it keeps {known}. Entries of a config are "
            "changed there"
        )
    job = told if isinstance(told, JobId) else None
    if as_json:
        print_json({"name": name, "changed": change, **({} if job is None else {"job": job, "is_new": job.is_new})})
    elif job is None:
        click.echo(f"schedule {name} {done}")
    elif job.is_new:
        click.echo(f"schedule {name}: job {job} {done}")
    else:
        click.echo(f"schedule {name}: nothing enqueued, since its job {job} has not ended (overlap)")


def configured(config: str | None, store: str | None) -> Iterator[tuple[dict[str, Any], tuple[str, ...]]]:
    """Entries of the config, as JSON and as a row. Without a config, a store is enough."""
    from clutch.config import find, load

    if store is not None and config is None:
        try:
            find()
        except ConfigError:
            return
    for one, at in next_ticks(load(config).cron):
        values = {"name": one.name, **one.values, "store": one.store, "from": "config", "next": at}
        yield values, (one.name, one.when, one.values["tool"], one.values["queue"], one.store, "config", str(at), "")


def kept(config: str | None, store: str | None) -> Iterator[tuple[dict[str, Any], tuple[str, ...]]]:
    """Entries that stores keep."""
    from clutch.config import find, load_stores

    if store is not None:
        stores = {store if "://" not in store else "--store": existing_store(store)}
    else:
        urls = load_stores(find() if config is None else Path(config))
        stores = {name: Jobs(url) for name, url in urls.items()}
    for shown, jobs in stores.items():
        file = _core.JobStore.file(jobs.url)
        if file is not None and not Path(file).exists():
            continue  # to look does not create a file
        for one in jobs.schedules():
            notes = ["paused"] * one.is_paused + [f"missed {one.missed}"] * bool(one.missed)
            following = "-" if one.next_at is None else str(one.next_at)
            values = {field.name: getattr(one, field.name) for field in dataclasses.fields(one)}
            row = (one.name, one.when, one.tool, one.queue, shown, "store", following, ", ".join(notes))
            yield {**values, "store": shown, "from": "store"}, row


def checked(ask: Callable[[], T]) -> T:
    try:
        return ask()
    except ValueError as error:
        raise click.UsageError(str(error)) from None
