"""`clutch run`: all pools and fronts of a configuration, until a signal. `clutch serve` has the same life.

The order of start and stop is here for this command: pools, fronts, ready; then fronts, pools. The main thread does
nothing but wait for signals, not even until its own log lines are written, so that a second one always gets through.
The control socket is there from before the first pool until after the last.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clutch.cli import control_server, logs, orders
from clutch.cli.commands import Commands
from clutch.cli.first import stay_first
from clutch.cli.flags import log_flags
from clutch.cli.orders import ENDS, OF_RUN, Order, Orders
from clutch.cli.reload import Reloader, Watcher, import_watchfiles, watched_folders
from clutch.cli.systemd import Notifier
from clutch.config import APPS
from clutch.errors import ClutchError, ConfigError

if TYPE_CHECKING:
    from clutch.cli.pidfile import Pidfile
    from clutch.config import Config, PoolSpec

# Above all signal numbers.
NEVER_READY = 200
STOPPED = 201

LOGGED_SECONDS = 2.0
"""How long the end waits until the log is written."""
HURRIED_SECONDS = 0.2
"""The same after a second signal."""

LEAVING_SECONDS_MAX = 5.0
"""What is kept of the grace for idle workers to leave in order, while the fronts still wait for requests that run."""
LEAVING_FRACTION = 0.25
LEAST_GRACE = 0.001
"""Seconds. Without any, workers would be killed rather than told with TERM first."""


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

    def __init__(self, numbers: Iterable[int]) -> None:
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.writer, False)
        self.replaced = signal.set_wakeup_fd(self.writer, warn_on_full_buffer=False)
        for number in numbers:
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
    """The life of one `clutch run` or `clutch serve`."""

    def __init__(
        self,
        config: Config,
        socket: Path | None = None,
        watch: bool = False,
        orders: Orders = OF_RUN,
        pidfile: Pidfile | None = None,
    ) -> None:
        """`orders`: what each signal means."""
        self.config = config
        self.orders = orders
        self.pidfile = pidfile
        self.socket = socket
        self.watch = watch
        self.inbox = Inbox(orders)
        self.notifier = Notifier()
        self.pools: dict[str, Any] = {}
        self.reloader = Reloader(self.pools, self.notifier, self._reload_certificate)
        self.control: control_server.Control | None = None
        self.watcher: Watcher | None = None
        self.fronts: Any = None
        self.announcers: list[threading.Thread] = []
        self.warner: threading.Thread | None = None
        self.awaited: set[str | None] = {spec.name for spec in config.pools if spec.values["required"]}
        self.had_terminal = has_terminal()
        self.log = logs.Queued()
        self.stop_was_asked = False
        self.exit_code = 0
        self.is_stopping = False
        self.has_grace = True

    def serve(self) -> int:
        """Until a signal, or a pool that can never be ready. Returns the exit code."""
        self.log.start()
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
            if not self.log.finish(LOGGED_SECONDS):
                os._exit(self.exit_code)  # the interpreter's end would wait for the reader of our stderr
        return self.exit_code

    def _wait_for_reason(self) -> None:
        while (byte := self.inbox.next()) != NEVER_READY and not self._carried_out(byte):
            pass
        reason = "a pool cannot start" if byte == NEVER_READY else signal.Signals(byte).name
        self.has_grace = self.orders.get(byte) is not Order.STOP_QUICKLY
        logs.info(f"{reason}: stopping; a signal now ends all at once")

    def _carried_out(self, number: int) -> bool:
        """What a signal asks for. True: that this ends."""
        match self.orders[number]:
            case Order.RELOAD:
                # A terminal that was closed says so by the same signal, and asks for no new code.
                if self.had_terminal and not has_terminal():
                    return True
                self.reloader.ask()
            case Order.MORE:
                orders.step(self.pools, +1)
            case Order.FEWER:
                orders.step(self.pools, -1)
            case Order.REOPEN:
                self._reopen_logs()
            case Order.NONE:
                self._say_unsupported(signal.Signals(number))
        return self.orders[number] in ENDS

    def _reopen_logs(self) -> None:
        """Our own log follows its file by itself; the access log is the front's."""
        self.fronts.reopen_logs()
        logs.info("log files opened anew")

    def _reload_certificate(self, names: list[str]) -> bool:
        """Of the app that is served by one of these pools."""
        serve = self.config.fronts.get("serve", {})
        if self.fronts is None or serve.get("tls") is None or serve["pool"] not in names:
            return False
        self.fronts.reload_certificate()
        return True

    def _say_unsupported(self, number: signal.Signals) -> None:
        # WINCH comes from a terminal as well, whenever its window changes.
        if number != signal.SIGWINCH or not self.had_terminal:
            logs.log.warning("%s is not supported: %s", number.name, orders.INSTEAD[number])

    def _wait_for_stop(self) -> None:
        while (byte := self.inbox.next()) != STOPPED:
            if self.orders.get(byte) in ENDS:
                # The zygotes and workers see our end and go too.
                self._remove_files()
                self.log.finish(HURRIED_SECONDS)
                os._exit(128 + byte)
        self.inbox.close()

    def _remove_files(self) -> None:
        if self.control is not None:
            self.control.remove_file()
        if self.pidfile is not None:
            self.pidfile.remove()

    def _start(self) -> None:
        from clutch import _core
        from clutch.pool import Pool

        if self.pidfile is not None:
            self.pidfile.write()
        self._open_control()
        for spec in self.config.pools:
            self.pools[spec.name] = Pool.from_spec(spec)
            logs.info(f"pool {spec.name}: {describe(spec)}", pool=spec.name, **spec.core["shape"])
        cores = {name: pool._core for name, pool in self.pools.items()}
        self.fronts = _core.Fronts(cores, **{name: json.dumps(core) for name, core in self.config.fronts.items()})
        for front, address, shown in addresses(self.config, self.fronts):
            logs.info(f"{front}: {shown}", front=front, address=address)
        self.warner = threading.Thread(target=self._warn, name="clutch-warnings", daemon=True)
        self.warner.start()
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

    def _warn(self) -> None:
        """What the fronts want to be read, until they have stopped."""
        while (warning := self.fronts.next_warning()) is not None:
            logs.log.warning("%s", warning)

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
            self._stop_fronts_and_pools()
            if self.warner is not None:
                self.warner.join()
            for announcer in self.announcers:
                announcer.join()  # a closed pool lets it go; no thread may be in the core when the interpreter ends
            self.reloader.close()
            if self.control is not None:
                self.control.close()
            if self.pidfile is not None:
                self.pidfile.remove()
            logs.info("stopped")
        except Exception:
            logs.log.exception("the stop failed")
            self.exit_code = self.exit_code or 1
        finally:
            self.inbox.say(STOPPED)

    def _stop_fronts_and_pools(self) -> None:
        """Side by side, so that all is over when the longest grace is."""
        since, fronts_over = time.monotonic(), threading.Event()
        with ThreadPoolExecutor(max(1, len(self.pools))) as together:
            stops = [together.submit(self._stop_pool, spec, since, fronts_over) for spec in self.config.pools]
            try:
                if self.fronts is not None:
                    self.fronts.stop(max(map(self._grace, self.config.pools)))
            finally:
                fronts_over.set()
            for stop in stops:
                stop.result()

    def _stop_pool(self, spec: PoolSpec, since: float, fronts_over: threading.Event) -> None:
        """Running work has what is left of the grace, then its workers are killed; the wait is for the last process.

        The fronts end first, since their requests are its work; but for the last of the grace, which is the pool's.
        """
        if (pool := self.pools.get(spec.name)) is None:
            return
        grace = self._grace(spec)
        # Without a grace the fronts end at once.
        fronts_over.wait(grace - min(LEAVING_SECONDS_MAX, grace * LEAVING_FRACTION) if grace else None)
        pool._stop(max(grace - (time.monotonic() - since), LEAST_GRACE) if grace else 0.0)
        pool.shutdown()

    def _grace(self, spec: PoolSpec) -> float:
        return spec.values["grace"] if self.has_grace else 0.0


def has_terminal() -> bool:
    """Whether this process belongs to a terminal that is still there."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def describe(spec: PoolSpec) -> str:
    """`shop.tools, process 8 × 1 × 1, Python 3.11.7`."""
    shape, launch, workers = spec.core["shape"], spec.core["launch"], spec.values["workers"]
    count = workers.max if workers.min == workers.max else f"{workers.min} to {workers.max}"
    profile = f"{shape['profile']} {count} × {shape['threads']} × {shape['tasks']}"
    if launch["app"] and launch["app"]["kind"] == "auto" and not launch["profile_given"]:
        other = "thread" if shape["threads"] > 1 else "process"
        profile += f" (a WSGI app: {other} {count} × {shape['threads']} × 1)"
    return f"{spec.values['target']}, {profile}, Python {spec.interpreter.label}"


def addresses(config: Config, fronts: Any) -> Iterator[tuple[str, str, str]]:
    """Of each front, where it listens, and the same as a person would type it."""
    for front in config.fronts:
        found = getattr(fronts, f"{front}_addresses" if front in APPS else f"{front}_address")()
        scheme = "" if front == "tcp" else "https://" if config.fronts[front].get("tls") else "http://"
        for address in found if front in APPS else [found]:
            yield front, address, address if address.startswith("unix:") else f"{scheme}{address}"
