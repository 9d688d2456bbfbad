"""`clutch run`: all pools and fronts of a configuration, until a signal. `clutch serve` has the same life.

What a process of its own has is here: signals, a file with its pid, exit codes, a log that a thread writes. The main
thread does nothing but wait for signals, not even until its own log lines are written, so that a second one always
gets through. How pools and fronts start and stop is in dispatcher.py.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from clutch._dispatcher import logs
from clutch._dispatcher.reload import import_watchfiles
from clutch._dispatcher.schedules import next_ticks
from clutch._process import signals
from clutch._process.inbox import AT_ONCE, NEVER_READY, Inbox
from clutch._process.init_process import stay_first
from clutch._process.life import run_until_signal
from clutch._process.signals import ENDS, OF_RUN, Action, Actions
from clutch._process.systemd import Notifier, Watchdog, take_listening
from clutch.cli.flags import log_flags
from clutch.dispatcher import Dispatcher
from clutch.errors import ConfigError

if TYPE_CHECKING:
    from clutch._process.pidfile import Pidfile
    from clutch.config import Config

LOGGED_SECONDS = 2.0
"""Maximum wait at the end until the log is written."""
HURRIED_SECONDS = 0.2
"""The same after a second signal."""


control_socket = click.option(
    "--control",
    "socket",
    type=click.Path(path_type=Path),
    envvar="CLUTCH_CONTROL",
    help="Path of the control socket; `off`: no control socket.",
)


@click.command("run", short_help="Run the pools and fronts of a configuration.")
@click.argument("config", required=False, type=click.Path(dir_okay=False), envvar="CLUTCH_CONFIG")
@click.option(
    "--set", "settings", multiple=True, metavar="PLACE=VALUE", help="Override an option: pools.api.workers=4."
)
@click.option("--insecure", is_flag=True, help="Allow fronts beyond loopback without a token or TLS.")
@click.option(
    "--reload",
    "watch",
    is_flag=True,
    help="Reload the code when its files change, for development. Pools without `workers` get one worker.",
)
@control_socket
@click.option("--check", is_flag=True, help="Check the configuration and exit.")
@log_flags
def command(
    config: str | None,
    settings: tuple[str, ...],
    insecure: bool,
    watch: bool,
    socket: Path | None,
    check: bool,
    log_format: str,
    log_level: str,
) -> None:
    """Run all pools and fronts of CONFIG (default: the nearest clutch.toml).

    SIGINT, SIGTERM: graceful shutdown; send it again to force. SIGHUP: reload.
    """
    stay_first()
    from clutch.config import load

    logs.set_up(log_format, log_level)
    loaded = load(config, settings=settings, insecure=insecure, development=watch)
    handed_over = take_listening()
    warnings = [*loaded.warnings, *unnamed(handed_over, loaded)]
    for warning in warnings:
        logs.log.warning(warning)
    if check:
        next_ticks(loaded.cron)
        names = ", ".join(pool.name for pool in loaded.pools)
        found = f"no errors, {len(warnings)} warning{'s'[: len(warnings) > 1]}" if warnings else "no problems"
        click.echo(f"{loaded.file}: {found}; pools: {names}")
        return
    if watch:
        import_watchfiles()
    raise SystemExit(Server(loaded, socket or loaded.control, watch, log_format=log_format).serve())


def unnamed(handed_over: Iterable[int], config: Config) -> Iterator[str]:
    """A warning for each socket of the service manager that no front takes over."""
    binds = (front.get("bind") for front in config.fronts.values())
    named = {bind for several in binds if isinstance(several, list) for bind in several}
    for bind in (f"fd:{descriptor}" for descriptor in handed_over):
        if bind not in named:
            yield f'LISTEN_FDS passes {bind}, but no front listens on it; set bind = ["{bind}"]'


class Server:
    """The life of one `clutch run` or `clutch serve`."""

    def __init__(
        self,
        config: Config,
        socket: Path | None = None,
        watch: bool = False,
        actions: Actions = OF_RUN,
        pidfile: Pidfile | None = None,
        log_format: str = "text",
        quick_grace: float = 0.0,
    ) -> None:
        """`actions`: what each signal means. `quick_grace`: seconds that running work has after a quick stop."""
        self.actions = actions
        self.quick_grace = quick_grace
        self.pidfile = pidfile
        self.hint: str | None = None
        """A line for the log at the start: written by a thread, since its reader may be stuck."""
        self.socket = socket
        self.inbox = Inbox(actions)
        notifier = Notifier(self._never_ready)
        self.dispatcher = Dispatcher(config, reload=watch, log_format=log_format, observer=notifier)
        self.watchdog = Watchdog(notifier.say, self._look)
        self.had_terminal = has_terminal()
        self.log = logs.Queued()
        self.stop_was_asked = False
        self.exit_code = 0
        self.has_grace = True

    def serve(self) -> int:
        """Runs until a signal, or a pool that can never be ready. Returns the exit code."""
        self.log.start()
        try:
            run_until_signal(self, self.inbox)
        except OSError:
            self.exit_code = 1  # `begin` has said why
        finally:
            self.inbox.close()
            if not self.log.finish(LOGGED_SECONDS):
                os._exit(self.exit_code)  # the interpreter's end would wait for the reader of our stderr
        return self.exit_code

    def begin(self) -> None:
        try:
            if self.pidfile is not None:
                self.pidfile.write()
            self.watchdog.start()
            self.dispatcher.open_control(self.socket, self._asked_to_stop)
            self.dispatcher.start()
            if self.hint is not None:
                logs.info(self.hint)
        except OSError as error:  # an address that is taken, a limit of the system
            logs.log.error("cannot start: %s", error)  # before the stop, which may take long or be cut short
            raise

    def _look(self) -> None:
        """Takes the lock of each pool, which one that is stuck holds."""
        for pool in list(self.dispatcher.pools.values()):
            pool.stats()

    def _never_ready(self, error: ConfigError) -> None:
        logs.log.error("%s", str(error).rstrip())  # it names the pool
        self.exit_code = 2
        self.inbox.say(NEVER_READY)

    def ending(self, reason: int) -> None:
        self.stop_was_asked = True  # `clutch stop` waits from now on; only a signal, or --now, hurries
        said = "a pool cannot start" if reason == NEVER_READY else signal.Signals(reason).name
        self.has_grace = self.actions.get(reason) is not Action.STOP_QUICKLY
        logs.info(f"{said}: stopping; send another signal to stop at once")

    def carry_out(self, number: int) -> bool:
        match self.actions[number]:
            case Action.RELOAD:
                # A terminal that was closed says so by the same signal, and asks for no new code.
                if self.had_terminal and not has_terminal():
                    return True
                self.dispatcher.ask_reload()
            case Action.MORE:
                signals.step(self.dispatcher.pools, +1)
            case Action.FEWER:
                signals.step(self.dispatcher.pools, -1)
            case Action.REOPEN:
                self.dispatcher.reopen_logs()
            case Action.NONE:
                self._say_unsupported(signal.Signals(number))
        return self.actions[number] in ENDS

    def _say_unsupported(self, number: signal.Signals) -> None:
        # WINCH comes from a terminal as well, whenever its window changes.
        if number != signal.SIGWINCH or not self.had_terminal:
            logs.log.warning("%s is not supported: %s", number.name, signals.INSTEAD[number])

    def hurry(self, number: int) -> None:
        if number != AT_ONCE and self.actions.get(number) not in ENDS:
            return
        if not self.stop_was_asked:  # what ends was a start that failed: this signal is the first
            self.stop_was_asked = True
            return
        number = signal.SIGTERM if number == AT_ONCE else number
        logs.info(f"{signal.Signals(number).name} again: stopping at once; what still runs is cut off")
        # The zygotes and workers see our end and go too.
        self._remove_files()
        self.log.finish(HURRIED_SECONDS)
        self.dispatcher.leave()
        self.dispatcher.recover_terminal()
        os._exit(128 + number)

    def _remove_files(self) -> None:
        self.dispatcher.remove_control()
        if self.pidfile is not None:
            self.pidfile.remove()

    def _asked_to_stop(self, now: bool) -> None:
        """Stops as on SIGTERM; `now`: as on a second one. To ask twice is not to be in a hurry."""
        if not self.stop_was_asked:
            self.stop_was_asked = True
            self.inbox.say(signal.SIGTERM)
        if now:
            self.inbox.say(AT_ONCE)

    def end(self) -> None:
        self.dispatcher.stopping()
        try:
            self.dispatcher.stop(None if self.has_grace else self.quick_grace)
            if self.pidfile is not None:
                self.pidfile.remove()
            logs.info("stopped")
        except Exception:
            logs.log.exception("shutdown failed")
            self.exit_code = self.exit_code or 1


def has_terminal() -> bool:
    """Returns whether this process belongs to a terminal that is still there."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
