"""`clutch run`: all pools and fronts of a configuration, until a signal.

The order of start and stop is here for this command: pools, fronts, ready; then fronts, pools. The main thread does
nothing but wait for signals, so that a second one always gets through. The control socket is there from before the
first pool until after the last.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clutch.cli import control_server, logs
from clutch.cli.commands import Commands
from clutch.cli.first import stay_first
from clutch.cli.flags import log_flags
from clutch.cli.reload import Reloader, Watcher, import_watchfiles, watched_folders
from clutch.cli.systemd import Notifier
from clutch.errors import ClutchError, ConfigError

if TYPE_CHECKING:
    from clutch.config import Config, PoolSpec

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Above all signal numbers.
NEVER_READY = 200
STOPPED = 201


@click.command("run")
@click.argument("config", required=False, type=click.Path(dir_okay=False), envvar="CLUTCH_CONFIG")
@click.option(
    "--set", "settings", multiple=True, metavar="PLACE=VALUE", help="Overrides an option: pools.api.workers=4."
)
@click.option("--insecure", is_flag=True, help="Allow fronts beyond loopback without a token.")
@click.option("--reload", "watch", is_flag=True, help="Load the code anew when its files change: for development.")
@click.option(
    "--control", "socket", type=click.Path(path_type=Path), envvar="CLUTCH_CONTROL", help="Where its control socket is."
)
@click.option("--check", is_flag=True, help="Only check the configuration.")
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
    """Runs all pools and fronts of CONFIG (default: the nearest clutch.toml).

    INT and TERM stop it in order, running work having its grace; a second one ends everything at once. HUP loads the
    code anew.
    """
    stay_first()
    from clutch.config import load

    logs.set_up(log_format, log_level)
    loaded = load(config, settings=settings, insecure=insecure)
    for warning in loaded.warnings:
        logs.log.warning(warning)
    if check:
        names = ", ".join(pool.name for pool in loaded.pools)
        click.echo(f"{loaded.file}: no problems; pools: {names}")
        return
    if watch:
        import_watchfiles()
    raise SystemExit(Server(loaded, socket or loaded.control, watch).serve())


class Inbox:
    """Signals, and what our threads say, as one byte each.

    A signal that arrives just before a thread blocks in a lock does not wake it; a byte in a pipe does.
    """

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.writer, False)
        self.replaced = signal.set_wakeup_fd(self.writer, warn_on_full_buffer=False)
        for number in (*SIGNALS, signal.SIGHUP):
            signal.signal(number, lambda *_: None)

    def say(self, byte: int) -> None:
        os.write(self.writer, bytes([byte]))

    def next(self) -> int:
        return os.read(self.reader, 1)[0]

    def close(self) -> None:
        signal.set_wakeup_fd(self.replaced)
        os.close(self.reader)
        os.close(self.writer)


class Server:
    """The life of one `clutch run`."""

    def __init__(self, config: Config, socket: Path | None = None, watch: bool = False) -> None:
        self.config = config
        self.socket = socket
        self.watch = watch
        self.inbox = Inbox()
        self.notifier = Notifier()
        self.pools: dict[str, Any] = {}
        self.reloader = Reloader(self.pools, self.notifier)
        self.control: control_server.Control | None = None
        self.watcher: Watcher | None = None
        self.fronts: Any = None
        self.announcers: list[threading.Thread] = []
        self.awaited: set[str | None] = {spec.name for spec in config.pools if spec.values["required"]}
        self.had_terminal = has_terminal()
        self.stop_was_asked = False
        self.exit_code = 0
        self.is_stopping = False

    def serve(self) -> int:
        """Until a signal, or a pool that can never be ready. Returns the exit code."""
        try:
            self._start()
            self._wait_for_reason()
        except OSError as error:  # an address that is taken, a limit of the system
            logs.log.error("cannot start: %s", error)
            self.exit_code = 1
        finally:
            self.is_stopping = True
            self.notifier.stopping()
            stopper = threading.Thread(target=self._stop, name="clutch-stop", daemon=True)
            stopper.start()
            self._wait_for_stop()
            stopper.join()
        return self.exit_code

    def _wait_for_reason(self) -> None:
        while (byte := self.inbox.next()) not in (*SIGNALS, NEVER_READY):
            if byte == signal.SIGHUP:
                # A terminal that was closed says so by the same signal, and asks for no new code.
                if self.had_terminal and not has_terminal():
                    break
                self.reloader.ask()
        reason = "a pool cannot start" if byte == NEVER_READY else signal.Signals(byte).name
        logs.info(f"{reason}: stopping; a signal now ends all at once")

    def _wait_for_stop(self) -> None:
        while (byte := self.inbox.next()) != STOPPED:
            if byte in SIGNALS:
                # The zygotes and workers see our end and go too.
                if self.control is not None:
                    self.control.remove_file()
                os._exit(128 + byte)
        self.inbox.close()

    def _start(self) -> None:
        from clutch import _core
        from clutch.pool import Pool

        self._open_control()
        for spec in self.config.pools:
            self.pools[spec.name] = Pool.from_spec(spec)
            logs.info(f"pool {spec.name}: {describe(spec)}", pool=spec.name, **spec.core["shape"])
        cores = {name: pool._core for name, pool in self.pools.items()}
        self.fronts = _core.Fronts(cores, _json(self.config.http), _json(self.config.admin))
        for front, address in (("http", self.fronts.http_address()), ("admin", self.fronts.admin_address())):
            if address is not None:
                logs.info(
                    f"{front}: {address if address.startswith('unix:') else f'http://{address}'}",
                    front=front,
                    address=address,
                )
        self.announcers = [
            threading.Thread(target=self._announce, args=(spec,), name="clutch-ready", daemon=True)
            for spec in self.config.pools
        ]
        self._ready(None)
        for announcer in self.announcers:
            announcer.start()
        if self.watch:
            self.watcher = Watcher(watched_folders(self.config), self.reloader)

    def _open_control(self) -> None:
        """Where it cannot be, the pools are served all the same; not where one was asked for."""
        commands = Commands(str(self.config.file.resolve()), self.pools, self.reloader.reload, self._asked_to_stop)
        try:
            if self.socket is not None:
                self.control = control_server.open_at(self.socket, commands)
            else:
                self.control = control_server.open_default(self.config.file, commands)
        except OSError as error:
            if self.socket is not None:
                raise
            logs.log.warning("no control socket, so `clutch ps` and the like do not reach this: %s", error)

    def _asked_to_stop(self, now: bool) -> None:
        """As by TERM; `now`: as by a second one. To ask twice is not to be in a hurry."""
        if not self.stop_was_asked:
            self.stop_was_asked = True
            self.inbox.say(signal.SIGTERM)
        if now:
            self.inbox.say(signal.SIGTERM)

    def _ready(self, name: str | None) -> None:
        """One more pool is ready, or for a beginning none; the service manager hears of the last that is required."""
        if name is not None and name not in self.awaited:
            return
        self.awaited.discard(name)
        if self.awaited:
            self.notifier.status(f"starting {', '.join(sorted(map(str, self.awaited)))}")
        else:
            self.notifier.ready("serving")

    def _announce(self, spec: PoolSpec) -> None:
        """Says when a pool is ready. One that can never be ends the run: better now than at the first call."""
        try:
            self.pools[spec.name].wait_ready(spec.core["workers_min"])
        except ClutchError as error:
            self._not_ready(error)
        else:
            logs.info(f"pool {spec.name}: ready", pool=spec.name, ready=True)
            self._ready(spec.name)

    def _not_ready(self, error: ClutchError) -> None:
        if not self.is_stopping:
            logs.log.error("%s", str(error).rstrip())  # it names the pool
            if isinstance(error, ConfigError):
                self.exit_code = 2
                self.inbox.say(NEVER_READY)

    def _stop(self) -> None:
        try:
            if self.watcher is not None:
                self.watcher.close()
            if self.fronts is not None:
                self.fronts.stop(max(spec.values["grace"] for spec in self.config.pools))
            with ThreadPoolExecutor(max(1, len(self.pools))) as together:
                list(together.map(self._stop_pool, self.config.pools))
            for announcer in self.announcers:
                announcer.join()  # a closed pool lets it go; no thread may be in the core when the interpreter ends
            self.reloader.close()
            if self.control is not None:
                self.control.close()
            logs.info("stopped")
        except Exception:
            logs.log.exception("the stop failed")
            self.exit_code = self.exit_code or 1
        finally:
            self.inbox.say(STOPPED)

    def _stop_pool(self, spec: PoolSpec) -> None:
        """Running work has the grace, then its workers are killed; the wait is for the last process."""
        if pool := self.pools.get(spec.name):
            pool._stop(spec.values["grace"])
            pool.shutdown()


def has_terminal() -> bool:
    """Whether this process belongs to a terminal that is still there."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def describe(spec: PoolSpec) -> str:
    """`shop.tools, process 8 × 1 × 1, Python 3.11.7`."""
    shape, workers = spec.core["shape"], spec.values["workers"]
    count = workers.max if workers.min == workers.max else f"{workers.min} to {workers.max}"
    size = f"{count} × {shape['threads']} × {shape['tasks']}"
    return f"{spec.values['target']}, {shape['profile']} {size}, Python {spec.interpreter.label}"


def _json(front: dict[str, Any] | None) -> str | None:
    return None if front is None else json.dumps(front)
