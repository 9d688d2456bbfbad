"""`clutch serve`: one app, with gunicorn's flags, run as `clutch run` runs a configuration with one front."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clutch._dispatcher import logs
from clutch._dispatcher.reload import Watched, import_watchfiles
from clutch._gunicorn.sources import Layers, read, setting_flags, typed_settings, without_effect
from clutch._gunicorn.translation import SHORT_LINE, Serve, configure
from clutch._process import log_config, signals
from clutch._process.init_process import stay_first
from clutch._process.pidfile import Pidfile
from clutch._process.systemd import take_listening
from clutch.cli.run import Server, control_socket
from clutch.cli.targets import dotted
from clutch.config import limits
from clutch.config.layers import variable_name
from clutch.dispatcher import describe
from clutch.errors import ConfigError, Problem

if TYPE_CHECKING:
    from clutch.config import Config

ACCESS_LOG = "fronts.serve.access_log"
PARTING_SECONDS = 1.0
"""On Ctrl-C: WebSockets and event streams are told to end, and what is about to be answered is."""
LOG_CONFIGS = ("logconfig_dict", "logconfig_json", "logconfig")


@click.command("serve", epilog="docs/serve/gunicorn.md compares each flag with gunicorn's.")
@click.argument("app", required=False, metavar="[MODULE[:APP]]")
@setting_flags
@click.option("--factory", is_flag=True, help="Call APP to create the app; same as module:create_app().")
@click.option("--tcp", is_flag=True, help="Treat APP as a handler of TCP connections.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="PLACE=VALUE",
    help="Set any other option: pools.web.deadline=10s.",
)
@control_socket
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def command(
    context: click.Context,
    app: str | None,
    factory: bool,
    tcp: bool,
    settings: tuple[str, ...],
    socket: Path | None,
    log_format: str,
    **_flags: Any,
) -> None:
    """Serve an ASGI, WSGI or TCP app.

    Flags of uvicorn and granian with the same meaning (--host, --port, --ssl-certfile …) work, too.

    SIGTERM: graceful shutdown. SIGINT, SIGQUIT: quick shutdown. SIGHUP: reload. SIGTTIN, SIGTTOU: add or
    remove a worker.
    """
    handed_over = take_listening()
    stay_first()
    layers = read(typed_settings(context), os.environ)
    watch = layers.value("reload", False)
    serve = Serve(app, tcp, factory, settings, handed_over, watch, line_format(watch, settings, log_format))
    check_usage(serve, layers)
    go_to(layers)
    check_is_module(app)
    about_logs = set_up_logs(log_format, layers)
    config, warnings = configure(serve, layers, os.environ)
    missed, others = without_effect(context)
    for line in others:
        logs.log.debug(line)
    for warning in (*about_logs, *missed, *warnings):
        logs.log.warning(warning)
    if layers.value("check_config"):
        click.echo(f"no problems; {shown(config)}")
        return
    if watch:
        import_watchfiles()
    pidfile = layers.value("pidfile")
    own_pidfile = Pidfile(Path(pidfile)) if pidfile else None
    server = Server(config, socket or config.control, watch, signals.OF_SERVE, own_pidfile, log_format)
    server.hint = hint_of_workers(layers, config)
    server.dispatcher.parting_seconds = PARTING_SECONDS
    server.dispatcher.watched = watched(layers)
    raise SystemExit(server.serve())


def watched(layers: Layers) -> Watched:
    """What `--reload` watches."""
    includes = (*layers.value("reload_includes", ()), *layers.value("reload_extra_files", ()))
    return Watched(layers.value("reload_dirs", ()), includes, layers.value("reload_excludes", ()))


def hint_of_workers(layers: Layers, config: Config) -> str | None:
    """What one worker is, where nobody has said how many, and what more would be."""
    cpus, spec = limits.usable_cpus(), config.pools[0]
    if "workers" in layers.given or cpus == 1 or spec.values["workers"].max != 1:
        return None
    return f"one worker, of {cpus} usable CPUs: -w {cpus} uses all, if the app keeps nothing in memory that others need"


def line_format(watch: bool, settings: tuple[str, ...], log_format: str) -> str | None:
    """Returns the format of the access log for a terminal; None without one, or where its file or format was chosen."""
    looks_on = watch or any(stream is not None and stream.isatty() for stream in (sys.stdout, sys.stderr))
    chosen = any(setting.startswith(ACCESS_LOG) for setting in settings)
    chosen = chosen or any(name.startswith(variable_name(ACCESS_LOG)) for name in os.environ)
    if not looks_on or chosen:
        return None
    return SHORT_LINE if log_format == "text" else log_format


def check_usage(serve: Serve, layers: Layers) -> None:
    if serve.app is None and not layers.value("wsgi_app"):
        raise click.UsageError("missing APP, for example: clutch serve package.module:app")
    if serve.tcp and serve.factory:
        raise click.UsageError("--factory creates an app; --tcp takes a handler")


def check_is_module(app: str | None) -> None:
    """Raises UsageError for the path of a file, before anything starts; of what is no file here its import tells."""
    path, _, name = (app or "").partition(":")
    if path.endswith(".py") and Path(path).is_file():
        meant = f"{dotted(path)}:{name}" if name else dotted(path)
        raise click.UsageError(f"{app!r} names a file, but APP is a module, as in `import`: clutch serve {meant}")


def go_to(layers: Layers) -> None:
    """All paths are meant from there, those of the other flags as well."""
    if (folder := layers.value("chdir")) is None:
        return
    try:
        os.chdir(folder)
    except OSError as error:
        what = f"cannot change to this folder: {error.strerror}"
        raise ConfigError(problems=[Problem("--chdir", what, repr(folder))]) from error


def set_up_logs(form: str, layers: Layers) -> list[str]:
    """Returns warnings."""
    # The last of them wins, as in gunicorn.
    configured = next((name for name in LOG_CONFIGS if layers.value(name)), None)
    if configured is not None:
        given = layers.given[configured]
        warnings = log_config.apply(given.value, given.source, layers.value("loglevel"))
        if "errorlog" in layers.given:
            warnings.append(f"{layers.given['errorlog'].source}: without effect beside {given.source}")
        return warnings
    file = layers.value("errorlog", "-")
    try:
        logs.set_up(form, layers.value("loglevel", "info"), None if file == "-" else file)
    except OSError as error:
        raise ConfigError(
            problems=[Problem("--error-logfile", f"cannot be written: {error.strerror}", repr(file))]
        ) from error
    return []


def shown(config: Config) -> str:
    pools = [f"{pool.name}: {describe(pool)}" for pool in config.pools]
    fronts = [f"{name}: {', '.join(front['bind'])}" for name, front in config.fronts.items() if "pool" in front]
    return "; ".join([*pools, *fronts])
