"""`clutch work`: runs the jobs of one store, as `clutch run` runs a configuration with one pool and one front."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from clutch._dispatcher import logs
from clutch._dispatcher.reload import import_watchfiles
from clutch._process.init_process import stay_first
from clutch._process.signals import OF_WORK as SIGNALS
from clutch.cli import celery_line
from clutch.cli.celery import log_as_told, node_of, stops_of
from clutch.cli.django_project import ask, taken
from clutch.cli.flags import log_flags, pool_flags, pool_options, pool_sources
from clutch.cli.habits import CommandWithHabits
from clutch.cli.habits_of_queues import OF_WORK
from clutch.cli.run import Server, control_socket
from clutch.cli.stores import STORE_HELP, url_of

POOL = "work"
OF_DJANGO = "clutch.django.tasks"
OF_JOBS = {
    "deadline": "Time limit of an attempt; when it passes, the attempt is interrupted and counts as failed.",
    "queue.limit": "",
    "queue.overflow": "",
    "deaths_max": "Give up a job when one attempt has killed this many workers.",
    "recycle.calls": "Replace a worker after this many jobs.",
    "recycle.together": "Maximum number of workers replaced at once; workers at their job or memory limit do not wait.",
    "grace": "How long a shutdown or reload waits for running jobs.",
    "payload_max": "Maximum size of the arguments or the result of one job; the store has its own, 8MB of JSON.",
}
"""Meaning of pool options for jobs. The pool's queue stays empty: no more jobs are claimed than slots are free."""


class WorkCommand(CommandWithHabits):
    habits = OF_WORK

    def whole_line(self, typed: Sequence[str]) -> str | None:
        return celery_line.whole_line(typed)


@click.command("work", cls=WorkCommand, short_help="Run the jobs of a store.")
@click.argument("targets", metavar="TARGET...", nargs=-1)
@click.option(
    "--django",
    "django",
    metavar="SETTINGS",
    help="Run the tasks of a Django project, by its settings: mysite.settings.",
)
@click.option(
    "--store",
    "url",
    envvar="CLUTCH_STORE",
    show_envvar=True,
    metavar="URL|NAME",
    help=f"{STORE_HELP} With --django, by default that of TASKS; of a Celery app, its broker.",
)
@click.option(
    "--queues",
    metavar="NAMES",
    help="Queues to take jobs from, with weights: critical:3,default:1. [default: default; with --django, of TASKS; "
    "those of a Celery app]",
)
@click.option(
    "--node", metavar="NAME", help="Name of the node of a Celery app, as its peers see it. [default: celery@HOST]"
)
@click.option("--strict", is_flag=True, help="Take jobs from a queue only while all queues before it are empty.")
@click.option(
    "--lease",
    metavar="TIME",
    help="Lose the jobs to other runners after this time without a lease renewal. [default: 30s]",
)
@click.option("--admin", metavar="ADDRESS", help="Serve /healthz, /readyz and /metrics there: 127.0.0.1:9180.")
@click.option("--reload", "watch", is_flag=True, help="Reload the code when its files change, for development.")
@click.option("--set", "settings", multiple=True, metavar="PLACE=VALUE", help="Set any other option.")
@control_socket
@log_flags
@functools.partial(pool_flags, docs=OF_JOBS)
def command(
    targets: tuple[str, ...],
    django: str | None,
    url: str | None,
    queues: str | None,
    node: str | None,
    strict: bool,
    lease: str | None,
    admin: str | None,
    watch: bool,
    settings: tuple[str, ...],
    socket: Path | None,
    log_format: str,
    log_level: str,
    **pool: str | None,
) -> None:
    """Run jobs whose tools are in TARGET: one or more modules, or an object of a module.

    SIGINT, SIGTERM: graceful shutdown (--grace); send it again to force. SIGQUIT: shutdown without grace. Interrupted
    jobs run again elsewhere. SIGHUP: reload the code.
    """
    stay_first()
    options = pool_options(pool)
    notes: tuple[str, ...] = ()
    taken_queues: str | tuple[str, ...] = "default" if queues is None else queues
    if django is not None:
        options["env"] = {**options.get("env", {}), "DJANGO_SETTINGS_MODULE": django}
        found = taken(django, ask(django, options.get("python"), options["env"]), given_store(url))
        # It sets Django up, which modules with models need.
        targets = (OF_DJANGO, *targets)
        url, notes = found.store, found.notes
        taken_queues = found.queues if queues is None else queues
    if not targets:
        raise click.UsageError("missing TARGET, for example: clutch work shop.tasks; or --django mysite.settings")
    celery = node_of(targets, queues, node, options) if django is None and given_store(url) is None else None
    if celery is not None:
        log_as_told(click.get_current_context(), options)
    target = ",".join(targets)
    from clutch.config import compose
    from clutch.config.values import DURATION

    logs.set_up(log_format, log_level)
    for note in notes:
        logs.log.info(note)
    front: dict[str, Any] = {"strict": strict}
    if celery is None:
        name, front["queues"], stores = "jobs", taken_queues, {"jobs": {"url": url_of(url)}}
    else:
        name, stores = "celery", {}
        front |= {option: value for option, value in (("queues", queues), ("node", node)) if value is not None}
    if lease is not None:
        front["lease"] = DURATION.read_text(lease)
    raw: dict[str, Any] = {
        "pools": {POOL: {"target": target, **options}},
        "stores": stores,
        "fronts": {name: front} | ({} if admin is None else {"admin": {"bind": admin}}),
    }
    # Relative paths are meant from here.
    file = Path.cwd() / re.sub(r"[/\\]", "_", target)
    sources = pool_sources(POOL) | {
        f"pools.{POOL}.target": "TARGET",
        f"stores.{name}.url": "--store",
        f"fronts.{name}.queues": "--queues",
        f"fronts.{name}.lease": "--lease",
        f"fronts.{name}.node": "--node",
        "fronts.admin.bind": "--admin",
    }
    config = compose(raw, file, settings=settings, development=watch, sources=sources)
    for warning in config.warnings:
        logs.log.warning(warning)
    if watch:
        import_watchfiles()
    socket = socket or config.control
    told = None if celery is None else celery.told()
    actions, quick_grace = (SIGNALS, 0.0) if told is None else stops_of(told)
    server = Server(config, socket, watch, actions, log_format=log_format, quick_grace=quick_grace)
    if celery is not None:
        server.dispatcher.nodes[name] = celery
    raise SystemExit(server.serve())


def given_store(url: str | None) -> str | None:
    """The store of the command line. The variable is for whoever says nothing: a backend without a STORE takes it, and
    an app of Celery has its broker."""
    is_given = click.get_current_context().get_parameter_source("url") is click.core.ParameterSource.COMMANDLINE
    return url_of(url) if is_given else None
