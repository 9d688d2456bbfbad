"""The life of pools and fronts: they start, serve, load new code and stop. Of a command, and of a program that serves.

The order of start and stop is here: pools, fronts, ready; then fronts, pools, under one deadline. Owns their threads,
and the control socket, which is there from before the first pool until after the last. No signals, no files of a
command, and no end of the process: these are in run.py and in _app_server.py.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clutch.cli import logs
from clutch.cli.reload import Reloader, Watcher, watched_folders
from clutch.cli.systemd import Notifier
from clutch.control import server
from clutch.control.commands import Commands, Identity, working_folder
from clutch.errors import ClutchError, ConfigError
from clutch.options import CONTROL_OFF

if TYPE_CHECKING:
    from clutch.cli.event_log import EventLog
    from clutch.config import Config, PoolSpec

LEAVING_SECONDS_MAX = 5.0
"""What is kept of the grace for idle workers to leave in order, while the fronts still wait for requests that run."""
LEAVING_FRACTION = 0.25
LEAST_GRACE = 0.001
"""Seconds. Without any, workers at work would be killed rather than told with TERM first."""


class Life:
    """All pools and fronts of a configuration."""

    def __init__(
        self,
        config: Config,
        notifier: Notifier,
        never_ready: Callable[[ConfigError], None],
        watch: bool = False,
        log_format: str = "text",
    ) -> None:
        """`never_ready`: told in a thread of ours of a pool that can never be ready. `watch`: for changes of files.
        `log_format`: of what workers print, and of access logs for which none was chosen.
        """
        self.log_format = log_format
        self.config = config
        self.notifier = notifier
        self.watch = watch
        self.pools: dict[str, Any] = {}
        self.fronts: Any = None
        self._event_log: EventLog | None = None
        self.reloader = Reloader(self.pools, self.notifier, self._reload_files, config.development)
        self.control: server.Control | None = None
        self.announcers: list[threading.Thread] = []
        self._never_ready = never_ready
        self._watcher: Watcher | None = None
        self._warner: threading.Thread | None = None
        self._awaited: set[str | None] = {spec.name for spec in config.pools if spec.values["required"]}
        self._is_stopping = False

    # ---- start

    def start(self) -> None:
        """Returns when the fronts listen. Raises OSError; what it has begun by then is stopped by `stop`."""
        from clutch import _core
        from clutch.cli.event_log import EventLog
        from clutch.pool import Pool

        if self.log_format == "json":
            _core.print_as("json")
        elif self.config.development and os.isatty(2) and list(map(has_one_worker, self.config.pools)) == [True]:
            _core.print_as("plain")
        self._event_log = EventLog(self.config.development)
        for spec in self.config.pools:
            spec.core["launch"]["log_format"] = self.log_format
            if self.config.development:
                spec.core["launch"]["debugger"] = debugger_of(spec)
            self.pools[spec.name] = Pool.from_spec(spec)
            logs.info(f"pool {spec.name}: {describe(spec)}", pool=spec.name, **spec.core["shape"])
        cores = {name: pool._core for name, pool in self.pools.items()}
        fronts = {name: json.dumps(with_log_format(core, self.log_format)) for name, core in self.config.fronts.items()}
        self.fronts = _core.Fronts(cores, **fronts)
        for front, address, shown in addresses(self.config, self.fronts):
            logs.info(f"{front}: {shown}", front=front, address=address)
        self._warner = threading.Thread(target=self._warn, name="clutch-warnings", daemon=True)
        self._warner.start()
        self.announcers = [
            threading.Thread(target=self._announce, args=(spec,), name="clutch-ready", daemon=True)
            for spec in self.config.pools
        ]
        self._ready(None)
        for announcer in self.announcers:
            announcer.start()
        if self.watch:
            self._watcher = Watcher(watched_folders(self.config), self.reloader)

    def open_control(self, socket: Path | None, asked_to_stop: Callable[[bool], None]) -> None:
        """Before the start. Where it cannot be, the pools are served all the same; not where one was asked for."""
        if socket == Path(CONTROL_OFF):
            return
        who = Identity(str(self.config.file.resolve()), working_folder())
        commands = Commands(who, self.pools, self.reloader.reload, asked_to_stop, self._http)
        try:
            if socket is not None:
                self.control = server.open_at(socket, commands)
            else:
                self.control = server.open_default(self.config.file, commands)
        except OSError as error:
            if socket is not None:
                raise
            logs.log.warning("no control socket, so `clutch ps` and the like do not reach this: %s", error)

    def _http(self) -> dict[str, Any] | None:
        fronts = self.fronts
        if fronts is None or (address := fronts.http_address()) is None:
            return None
        tls = self.config.fronts["http"]["tls"]
        certificate = None if tls is None else tls["certificate"]
        return {"address": address, "token": fronts.http_token(), "certificate": certificate}

    def reopen_logs(self) -> None:
        """Our own log follows its file by itself; the access log is the front's."""
        self.fronts.reopen_logs()
        logs.info("log files opened anew")

    def _reload_files(self, names: list[str]) -> list[tuple[str, str | None]]:
        """Certificates and tokens; of an app those alone that one of these pools serves."""
        return [] if self.fronts is None else self.fronts.reload_files(names)

    def _ready(self, name: str | None) -> None:
        """One more pool is ready, or for a beginning none; the service manager hears of the last that is required."""
        if name is not None and name not in self._awaited:
            return
        self._awaited.discard(name)
        if self._awaited:
            self.notifier.status(f"starting {', '.join(sorted(map(str, self._awaited)))}")
        else:
            self.notifier.ready("serving")

    def _warn(self) -> None:
        """What the fronts want to be read, until they have stopped."""
        while (warning := self.fronts.next_warning()) is not None:
            logs.log.warning("%s", warning)

    def _announce(self, spec: PoolSpec) -> None:
        """Says when a pool is ready. One that can never be ends the run: better now than at the first call. While its
        code is being written it is told by the log, and may be mended.
        """
        try:
            self.pools[spec.name].wait_ready(spec.core["workers_min"])
        except ClutchError as error:
            self._not_ready(error)
        else:
            image = self.pools[spec.name].stats()["image"] or {}
            shape = image.get("shape") or spec.core["shape"]
            became = f": {describe_shape(spec, shape)}" if image.get("shape") else ""
            kind = {"interface": image["interface"]} if image.get("interface") else {}
            served = f" ({image['interface']} app)" if kind else ""
            logs.info(f"pool {spec.name}: ready{became}{served}", pool=spec.name, ready=True, **shape, **kind)
            self._ready(spec.name)

    def _not_ready(self, error: ClutchError) -> None:
        if self._is_stopping or self.config.development:  # the next save may mend it, and the log tells what is wrong
            return
        if isinstance(error, ConfigError):
            self._never_ready(error)
        else:
            logs.log.error("%s", str(error).rstrip())  # it names the pool

    # ---- stop

    def stopping(self) -> None:
        """It is decided: from now on nothing that fails to start is news."""
        self._is_stopping = True
        self.notifier.stopping()

    def stop(self, has_grace: bool = True) -> None:
        """Returns when nothing is left."""
        if self._watcher is not None:
            self._watcher.close()
        self._stop_fronts_and_pools(has_grace)
        if self._event_log is not None:
            self._event_log.close()
        if self._warner is not None:
            self._warner.join()
        for announcer in self.announcers:
            announcer.join()  # a closed pool lets it go; no thread may be in the core when the interpreter ends
        self.reloader.close()
        if self.control is not None:
            self.control.close()

    def recover_terminal(self) -> None:
        """Right before the end of the process: a worker may be asking there, and dies with it."""
        if self.config.development:
            from clutch import _core

            _core.recover_terminal()

    def _stop_fronts_and_pools(self, has_grace: bool) -> None:
        """Side by side, so that all is over when the longest grace is."""
        since, fronts_over = time.monotonic(), threading.Event()
        graces = {spec.name: spec.values["grace"] if has_grace else 0.0 for spec in self.config.pools}
        with ThreadPoolExecutor(max(1, len(self.pools))) as together:
            stops = [
                together.submit(stop_pool, pool, graces[name], since, fronts_over) for name, pool in self.pools.items()
            ]
            try:
                if self.fronts is not None:
                    self.fronts.stop(max(graces.values()))
            finally:
                fronts_over.set()
            for stop in stops:
                stop.result()


def stop_pool(pool: Any, grace: float, since: float, fronts_over: threading.Event) -> None:
    """Running work has what is left of the grace, then its workers are killed; the wait is for the last process. Idle
    workers end in order, also without a grace.

    The fronts end first, since their requests are its work; but for the last of the grace, which is the pool's.
    """
    # Without a grace the fronts end at once.
    fronts_over.wait(grace - min(LEAVING_SECONDS_MAX, grace * LEAVING_FRACTION) if grace else None)
    pool._stop(max(grace - (time.monotonic() - since), LEAST_GRACE) if grace else 0.0)
    pool.shutdown()


def has_one_worker(spec: PoolSpec) -> bool:
    most: int = spec.values["workers"].max
    return most == 1


def debugger_of(spec: PoolSpec) -> dict[str, Any]:
    """The terminal at which a debugger may ask, and the group that has it else; or why none may."""
    if not has_one_worker(spec):
        return {"refused": f"pool {spec.name!r} has {spec.values['workers'].max} workers"}
    try:
        terminal = os.ttyname(0)
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return {"refused": "here standard input is no terminal of the server's own"}
    return {"terminal": terminal, "group": os.getpgrp()}


def with_log_format(front: Mapping[str, Any], form: str) -> Mapping[str, Any]:
    """Of the access log, where none was chosen: that of our own log."""
    if front.get("access_log_format", "") is not None:
        return front
    return {**front, "access_log_format": form}


def describe(spec: PoolSpec) -> str:
    """`shop.tools, process 8 × 1 × 1, Python 3.11.7`."""
    shape, launch = spec.core["shape"], spec.core["launch"]
    profile = describe_shape(spec, shape)
    if launch["app"] and launch["app"]["kind"] in ("auto", "wsgi") and not launch["profile_given"]:
        other = "thread" if shape["threads"] > 1 else "process"
        of_wsgi = describe_shape(spec, {**shape, "profile": other, "tasks": 1})
        profile = of_wsgi if launch["app"]["kind"] == "wsgi" else f"{profile} (or {of_wsgi}, if it is a WSGI app)"
    return f"{spec.values['target']}, {profile}, Python {spec.interpreter.label}"


def describe_shape(spec: PoolSpec, shape: Mapping[str, Any]) -> str:
    """`thread 2 × 4 × 1`."""
    workers = spec.values["workers"]
    count = workers.max if workers.min == workers.max else f"{workers.min} to {workers.max}"
    return f"{shape['profile']} {count} × {shape['threads']} × {shape['tasks']}"


def addresses(config: Config, fronts: Any) -> Iterator[tuple[str, str, str]]:
    """Of each front, where it listens, and the same as a person would type it."""
    for front in config.fronts:
        found = [fronts.admin_address()] if front == "admin" else getattr(fronts, f"{front}_addresses")()
        scheme = "" if front == "tcp" else "https://" if config.fronts[front].get("tls") else "http://"
        for address in found:
            yield front, address, address if address.startswith("unix:") else f"{scheme}{address}"
