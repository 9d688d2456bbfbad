"""The dispatcher: pools and fronts of a configuration, in this process. The composition root of everything that serves.

The order of start and stop is here and nowhere else: runtime, pools, fronts, ready; then fronts, pools, runtime, under
one deadline. Owns their threads, and the control socket, which is there from before the first pool until after the
last. Knows neither signals nor command lines, writes no files of a command, and never ends the process.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from clutch._dispatcher import logs
from clutch._dispatcher.celery_node import Node, front_of, node_of, part_of
from clutch._dispatcher.observer import Observer
from clutch._dispatcher.reload import Reloader, Watched, Watcher, import_watchfiles, watched_folders
from clutch._dispatcher.schedules import next_ticks, unknown_tools
from clutch._pool.caller import refuse_in_patched, refuse_in_subinterpreter
from clutch.config import Config, load
from clutch.config.layers import read_file
from clutch.config.log_format import tells_cpu
from clutch.config.options import CONTROL_OFF, FRONTS
from clutch.config.values import without_password
from clutch.control import sockets
from clutch.control.program import program
from clutch.errors import ClutchError, ConfigError, NoSuchPool

if TYPE_CHECKING:
    from clutch import _core
    from clutch._dispatcher.event_log import EventLog
    from clutch.config import PoolSpec
    from clutch.pool import Pool

POOLS_SHOWN_MAX = 10
"""Maximum number of pools that the start line of a front names."""

SLOW_START_SECONDS = 10.0
"""Of a pool that is not ready by then it is told that it is still starting."""

LEAVING_SECONDS_MAX = 5.0
"""What is kept of the grace for idle workers to leave in order, while the fronts still wait for requests that run."""
LEAVING_FRACTION = 0.25
JOBS_SETTLED_SECONDS = 1.5
"""How long beyond the grace a stop waits for a store to take how its jobs ended; what it does not take runs again."""
CUT_SECONDS = 1.0
"""Beyond the grace, for the code of requests that is told to stop then, and the shutdown of their app."""
LEAST_GRACE = 0.001
"""Seconds. Without any, workers at work would be killed rather than told with TERM first."""


class Dispatcher:
    """Runs the pools and fronts of a configuration beside the program:

        with clutch.Dispatcher("clutch.toml") as dispatcher:
            dispatcher.pools["api"].call("price", items=[1.0, 2.0])
            print(dispatcher.addresses)

    Entering it waits until every pool that is `required` has its workers; leaving it stops everything in order.
    """

    def __init__(
        self,
        config: str | os.PathLike[str] | Config | None = None,
        *,
        settings: Iterable[str] = (),
        insecure: bool = False,
        reload: bool = False,
        log_format: str = "text",
        observer: Observer | None = None,
    ) -> None:
        """Reads the configuration; nothing is started yet.

        `config`: path of a file; by default the nearest `clutch.toml`, as for `clutch run`. `settings`: texts as of
        `--set`, such as `"pools.api.workers=4"`. `insecure`: fronts beyond loopback need neither a token nor TLS.
        `reload`: load the code anew when its files change. `log_format`: "text" or "json", of what workers print and of
        access logs for which no format was chosen. Raises `ConfigError` with everything that is wrong.
        """
        refuse_in_subinterpreter()
        refuse_in_patched("A dispatcher")
        given = isinstance(config, Config)
        self.config = config if given else load(config, settings=settings, insecure=insecure, development=reload)
        next_ticks(self.config.cron)
        if reload:
            import_watchfiles()
        self.log_format = log_format
        self.pools: dict[str, Pool] = {}
        """The pools by name, once started."""
        self.nodes: dict[str, Node] = {}
        """Of fronts with a Celery app, those that were started before."""
        self.watched = Watched()
        """What a reload at changes of files looks at."""
        self.parting_seconds = 0.0
        """Time that the connections of fronts have at a stop without a grace: what has no end of its own is told."""
        self._observer = observer or Observer()
        self._reload = reload
        self._tables = tables_of(self.config.file)
        """As the file had them at the start."""
        self._fronts: Any = None
        self._event_log: EventLog | None = None
        self._reloader = Reloader(self.pools, self._observer, self._reload_files, self.config.development)
        self._plane: _core.Plane | None = None
        self._asked_to_stop: Callable[[bool], None] = refuse_to_stop
        self._has_control = False
        """True if it has a control socket of its own, or is to have none; else it is shown with the program's pools."""
        self._control: Path | None = None
        """The socket where it is shown."""
        self._announcers: list[threading.Thread] = []
        self._watcher: Watcher | None = None
        self._warner: threading.Thread | None = None
        self._awaited: set[str | None] = {spec.name for spec in self.config.pools if spec.values["required"]}
        self._life_lock = threading.RLock()  # a signal handler may stop it in the thread that starts or stops it
        self._is_stopping = self._is_over = False
        self._pid = os.getpid()
        self._failure: ConfigError | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    @property
    def addresses(self) -> dict[str, list[str]]:
        """Where each front listens, as `{"http": ["127.0.0.1:8080"]}`, or `unix:/path`. Empty after the stop."""
        if self._fronts is None:
            return {}
        return {name: self._fronts.addresses(name) for name, core in self.config.fronts.items() if "bind" in core}

    def urls(self) -> Iterator[tuple[str, str, str]]:
        """Yields each address of the fronts: the front's name, the address, and the address as a person types it."""
        for front, found in self.addresses.items():
            core = self.config.fronts[front]
            scheme = FRONTS[core["kind"]].scheme
            prefix = f"{scheme}{'s' * (tls_of(core) is not None)}://" if scheme else ""
            for address in found:
                yield front, address, address if address.startswith("unix:") else f"{prefix}{address}"

    # ---- start

    def start(self) -> None:
        """Returns when the fronts listen. Raises OSError; what it has begun by then is stopped by `stop`."""
        with self._life_lock:
            if self._is_over or self._event_log is not None:
                raise RuntimeError("this dispatcher has been started or stopped before: create another one")
            self._begin()
            if self._is_over:  # by a signal handler meanwhile, which found a part of it
                self._end(None)

    def _begin(self) -> None:
        from clutch import _core
        from clutch._dispatcher.event_log import EventLog

        if self.log_format == "json":
            _core.print_as("json")
        elif self.config.development and os.isatty(2) and list(map(has_one_worker, self.config.pools)) == [True]:
            _core.print_as("plain")
        self._event_log = EventLog(self.config.development)
        plane = self._made_plane()
        pools = {spec.name: spec for spec in self.config.pools}
        for name, core in self.config.celery.items():
            if name not in self.nodes:
                self.nodes[name] = node_of(core, pools[core["pool"]])
        for spec in self.config.pools:
            self._start_pool(spec, plane)
        self._ask_nodes()
        self._start_fronts(plane)
        for name, node in self.nodes.items():
            node.serve(part_of(self.config.fronts[name], self._control))
        self._tell_cron()
        self._announcers = [
            threading.Thread(target=self._announce, args=(spec,), name="clutch-ready", daemon=True)
            for spec in self.config.pools
        ]
        self._ready(None)
        for announcer in self._announcers:
            announcer.start()
        if self._reload:
            folders = self.watched.folders() or watched_folders(self.config)
            self._watcher = Watcher(folders, self._reloader, self.watched)

    def _ask_nodes(self) -> None:
        """Makes fronts of jobs of those with a Celery app, by what it says."""
        fronts = {name: front_of(node, f"fronts.{name}", self.config.fronts[name]) for name, node in self.nodes.items()}
        self.config = dataclasses.replace(self.config, fronts={**self.config.fronts, **fronts})

    def _start_fronts(self, plane: _core.Plane) -> None:
        from clutch import _core

        fronts = [(name, core["kind"], front_json(core, self.log_format)) for name, core in self.config.fronts.items()]
        if not fronts:
            return
        try:
            self._fronts = _core.Fronts(plane, fronts)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        for front, address, shown in self.urls():
            logs.info(f"{front}: {shown}", front=front, address=address)
        for front, core in self.config.fronts.items():
            if core["kind"] == "http":
                logs.info(f"fronts.{front}: {self._reachable(core)}", front=front)
        for name, front in self.config.jobs.items():
            store, pool = without_password(front["store"]), front["pool"]
            logs.info(f"{name}: {store}, queues {describe_queues(front)}, in pool {pool}", front=name, pool=pool)
        self._warner = threading.Thread(target=self._warn, args=(self._fronts,), name="clutch-warnings", daemon=True)
        self._warner.start()

    def _reachable(self, core: Mapping[str, Any]) -> str:
        """Returns what the log says at the start of the pools of a front for calls."""
        names = core["pools"] or [pool.name for pool in self.config.pools if pool.core["launch"]["app"] is None]
        more = f" and {len(names) - POOLS_SHOWN_MAX} more" * (len(names) > POOLS_SHOWN_MAX)
        return f"tools of {', '.join(names[:POOLS_SHOWN_MAX])}{more}" if names else "no tools: no pool has any"

    def _tell_cron(self) -> None:
        for entry, tick in next_ticks(self.config.cron):
            text = f"cron {entry.name}: {entry.values['tool']}, {entry.when}, next {tick}"
            logs.info(text, cron=entry.name, next=tick.isoformat())

    def _start_pool(self, spec: PoolSpec, plane: _core.Plane) -> None:
        from clutch.pool import Pool

        spec.core["launch"]["log_format"] = self.log_format
        spec.core["takes_turns"] = spec.core["launch"]["app"] is not None and os.isatty(2)
        fronts = self.config.fronts.values()
        spec.core["launch"]["tells_cpu"] = any(logs_cpu(front, spec.name, self.log_format) for front in fronts)
        if self.config.development:
            spec.core["launch"]["debugger"] = debugger_of(spec)
        self.pools[spec.name] = pool = Pool.from_spec(spec)
        plane.add(pool)
        if not self._has_control:
            program.show(pool)
            self._control = program.socket()
        logs.info(f"pool {spec.name}: {describe(spec)}", pool=spec.name, **spec.core["shape"])

    def wait_ready(self) -> None:
        """Waits until each pool has its workers or has failed. Raises `ConfigError` for a pool that can never start."""
        for announcer in self._announcers:
            announcer.join()
        if self._failure is not None:
            raise self._failure

    def open_control(self, socket: Path | None, asked_to_stop: Callable[[bool], None]) -> None:
        """Before the start. Where it cannot be, the pools are served all the same; not where one was asked for."""
        self._has_control = True
        if socket == Path(CONTROL_OFF):
            return
        self._asked_to_stop = asked_to_stop
        try:
            place = sockets.place_for(self.config.file) if socket is None else socket.absolute()
            self._made_plane().open(place, while_pools=False)
            self._control = place
        except OSError as error:
            if socket is not None:
                raise OSError(f"control socket {socket}: {error}") from error
            logs.log.warning("no control socket, so `clutch ps` and the like do not reach this: %s", error)

    def _made_plane(self) -> _core.Plane:
        from clutch import _core
        from clutch.config.limits import usable_cpus

        if self._plane is None:
            identity = {"config": str(self.config.file.resolve()), "folder": sockets.working_folder()}
            identity |= {"is_program": False, "cpus": usable_cpus()}
            self._plane = _core.Plane(json.dumps(identity), Host(self))
        return self._plane

    def _told_fronts(self) -> dict[str, dict[str, Any]]:
        """Of each front, for operators: where it listens, and what a client of this machine needs there."""
        if self._fronts is None:
            return {}
        return {
            name: {
                "kind": core["kind"],
                "addresses": self._fronts.addresses(name),
                "address": self._fronts.address(name),
                "token": self._fronts.token(name),
                "certificate": (tls_of(core) or {}).get("certificate"),
            }
            for name, core in self.config.fronts.items()
            if "bind" in core
        }

    def remove_control(self) -> None:
        """Removes the file of the control socket, before an end that does not wait for anything."""
        if self._plane is not None:
            self._plane.remove_file()

    def reload(self, *pools: str) -> None:
        """Reloads the code of these pools, or of all, and waits until it is in use. Rereads certificates and tokens.

        Raises `ConfigError` with what cannot be used; the old code stays in use. Raises `NoSuchPool`.
        """
        for name in pools:
            if name not in self.pools:
                raise NoSuchPool(f"no pool {name!r}; allowed: {', '.join(self.pools)}", name=name)
        if failed := self._reloader.reload(list(pools or self.pools)):
            raise ConfigError("\n".join(failed.values()))

    def ask_reload(self) -> None:
        """As `reload` of all, soon; returns at once, and the log tells what came of it."""
        self._reloader.ask()

    def reopen_logs(self) -> None:
        """Our own log follows its file by itself; the access log is the front's."""
        if self._fronts is not None:
            self._fronts.reopen_logs()
        logs.info("log files opened anew")

    def _reload_files(self, names: list[str]) -> list[tuple[str, str | None]]:
        """Certificates and tokens; of an app those alone that one of these pools serves."""
        self._warn_of_changes()
        nodes = [name for name in self.nodes if self.config.fronts[name]["pool"] in names]
        renewed = [(f"fronts.{name}", self.nodes[name].renew()) for name in nodes]
        return renewed if self._fronts is None else [*renewed, *self._fronts.reload_files(names)]

    def _warn_of_changes(self) -> None:
        """A reload takes new code, not a new configuration: who has edited that is told."""
        found = tables_of(self.config.file)
        changed = sorted(
            name for name in found.keys() | self._tables.keys() if found.get(name) != self._tables.get(name)
        )
        if changed and found:
            logs.log.warning(
                "%s: changed since the start, and not taken by a reload: %s; restart to use it",
                self.config.file,
                ", ".join(changed),
            )

    def _ready(self, name: str | None) -> None:
        """One more pool is ready, or for a beginning none; the service manager hears of the last that is required."""
        if name is not None and name not in self._awaited:
            return
        self._awaited.discard(name)
        if self._awaited:
            self._observer.status(f"starting {', '.join(sorted(map(str, self._awaited)))}")
        else:
            self._observer.ready("serving")

    def _warn(self, fronts: Any) -> None:
        """What the fronts want to be read, until they have stopped: maybe before this thread runs."""
        while (warning := fronts.next_warning()) is not None:
            logs.log.warning("%s", warning)

    def _announce(self, spec: PoolSpec) -> None:
        """Says when a pool is ready. One that can never be ends the run: better now than at the first call. While its
        code is being written it is told by the log, and may be mended.
        """
        try:
            self._wait_ready(spec)
        except ClutchError as error:
            self._not_ready(spec, error)
        else:
            image = self.pools[spec.name].stats()["image"] or {}
            shape = image.get("shape") or spec.core["shape"]
            became = f": {describe_shape(spec, shape)}" if image.get("shape") else ""
            kind = {"interface": image["interface"]} if image.get("interface") else {}
            served = f" ({image['interface']} app)" if kind else ""
            logs.info(f"pool {spec.name}: ready{became}{served}", pool=spec.name, ready=True, **shape, **kind)
            if kind and spec.values["workers"].max > 1:
                what = "what one keeps in memory (sessions, caches, connected clients) the others do not see"
                logs.info(f"pool {spec.name}: {spec.values['workers'].max} workers share no memory: {what}")
            for warning in unknown_tools(self.config, spec.name, image.get("tools")):
                logs.log.warning("%s", warning)
            self._ready(spec.name)

    def _wait_ready(self, spec: PoolSpec) -> None:
        pool, wanted = self.pools[spec.name], spec.core["workers_min"]
        try:
            pool.wait_ready(wanted, SLOW_START_SECONDS)
        except TimeoutError:
            where = f"`clutch stack {spec.name}` shows where, unless a coroutine waits"
            what = f"still starting after {SLOW_START_SECONDS:.0f} s (imports, on_start, the app's lifespan): {where}"
            logs.info(f"pool {spec.name}: {what}", pool=spec.name)
            pool.wait_ready(wanted)

    def _not_ready(self, spec: PoolSpec, error: ClutchError) -> None:
        if self._is_stopping or self.config.development:  # the next save may mend it, and the log tells what is wrong
            return
        if isinstance(error, ConfigError) and spec.values["required"]:
            self._failure = error
            self._observer.failed(error)
        else:
            logs.log.error("%s", str(error).rstrip())  # it names the pool

    # ---- stop

    def stopping(self) -> None:
        """It is decided: from now on nothing that fails to start is news."""
        self._is_stopping = True
        self._observer.stopping()

    def stop(self, grace: float | None = None) -> None:
        """Stops the fronts, then the pools; returns when nothing is left. Harmless when repeated, or in a forked copy.

        Running work has `grace` seconds, by default the `grace` of its pool; with 0 it is ended at once. Waits for a
        start or another stop that is under way in another thread.
        """
        if self._pid != os.getpid():
            return  # its lock may be held by a thread that this copy does not have
        with self._life_lock:
            if not self._is_over:
                self._is_over = self._is_stopping = True
                self._end(grace)

    def _end(self, grace: float | None) -> None:
        if self._plane is not None:
            self._plane.stops()
        if self._watcher is not None:
            self._watcher.close()
        try:
            self._stop_fronts_and_pools(grace)
        finally:
            self._release()

    def _release(self) -> None:
        """Its threads, and the control socket."""
        if self._event_log is not None:
            self._event_log.close()
        if self._warner is not None:
            self._warner.join()
        for announcer in self._announcers:
            if announcer.ident is not None:
                announcer.join()  # a closed pool lets it go; no thread may be in the core when the interpreter ends
        self._reloader.close()
        for node in self.nodes.values():
            node.end()
        if self._plane is not None:
            self._plane.close(waits=True)

    def leave(self) -> None:
        """Leaves the jobs that run to other programs at once, and not only when the leases end: right before the end of
        the process, also in the midst of a stop. Takes half a second at most for each front of jobs.
        """
        if (fronts := self._fronts) is not None:
            fronts.leave()

    def recover_terminal(self) -> None:
        """Right before the end of the process: a worker may be asking there, and dies with it."""
        if self.config.development:
            from clutch import _core

            _core.recover_terminal()

    def _stop_fronts_and_pools(self, grace: float | None) -> None:
        graces = {spec.name: spec.values["grace"] if grace is None else grace for spec in self.config.pools}
        try:
            self._stop_work(graces)
        finally:
            if self._fronts is not None:
                # The admin front: whoever watches has seen the rest stop.
                self._fronts.stop(max(graces.values()))
                self._fronts = None

    def _stop_work(self, graces: Mapping[str, float]) -> None:
        """Side by side, so that all is over when the longest grace is."""
        since, fronts_over = time.monotonic(), threading.Event()
        served = {front["pool"] for front in self.config.fronts.values() if front["kind"] == "serve"}
        grace = max(graces.values()) or self.parting_seconds
        with ThreadPoolExecutor(max(1, len(self.pools))) as together:
            stops: list[Callable[[], None]] = []
            for name, pool in self.pools.items():
                own, cut = graces[name], None
                if name in served:
                    cut = CUT_SECONDS if own else LEAVING_SECONDS_MAX
                    own = own or self.parting_seconds
                stop = functools.partial(stop_pool, pool, own, since, fronts_over, cut)
                try:
                    stops.append(together.submit(stop).result)
                except RuntimeError:  # no thread can be had: at the interpreter's end, or at a limit of the system
                    stops.append(stop)
            try:
                if self._fronts is not None:
                    self._fronts.stop_work(grace)
            finally:
                fronts_over.set()
            for stop in stops:
                stop()
        # What the pools have cut off is put back.
        if self._fronts is not None:
            settled_at = max(since + max(graces.values()), time.monotonic()) + JOBS_SETTLED_SECONDS
            self._fronts.settle(settled_at - time.monotonic())


class Host:
    """What operators have done by a dispatcher. Its methods run in threads of the core."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = weakref.ref(dispatcher)

    def reload(self, pools: list[str]) -> dict[str, str]:
        return self._living()._reloader.reload(pools)

    def stop(self, now: bool) -> None:
        self._living()._asked_to_stop(now)

    def fronts(self) -> str:
        return json.dumps(self._living()._told_fronts())

    def _living(self) -> Dispatcher:
        dispatcher = self._dispatcher()
        if dispatcher is None:
            raise ClutchError("it has ended")
        return dispatcher


def tables_of(file: Path) -> dict[str, Any]:
    """What a configuration says, by place: `cron.nightly`. Empty where there is no file, or none that can be read."""
    try:
        raw = read_file(file)
    except ConfigError:
        return {}
    within = {
        f"{name}.{key}": one for name, value in raw.items() if isinstance(value, dict) for key, one in value.items()
    }
    return within | {name: value for name, value in raw.items() if not isinstance(value, dict)}


def refuse_to_stop(now: bool) -> None:
    raise ClutchError(
        f"this dispatcher ends with its program, or by stop() there; to end the program: kill {os.getpid()}"
    )


def stop_pool(pool: Any, grace: float, since: float, fronts_over: threading.Event, cut: float | None) -> None:
    """Running work has what is left of the grace, then its workers are killed; the wait is for the last process. Idle
    workers end in order, also without a grace.

    The fronts end first, since their requests are its work; but for the last of the grace, which is the pool's. An
    app's requests are told to stop then, and have `cut` seconds more, so that it can shut down; None: it is no app's.
    """
    # Without a grace the fronts end at once.
    fronts_over.wait(grace - min(LEAVING_SECONDS_MAX, grace * LEAVING_FRACTION) if grace else None)
    left = max(grace - (time.monotonic() - since), 0.0)
    if cut is not None:
        pool._stop(left + cut)
        # Behind its clients, whose connections the fronts have cut off by then.
        fronts_over.wait()
        pool._cut_off(max(grace - (time.monotonic() - since), 0.0))
    else:
        pool._stop(max(left, LEAST_GRACE) if grace else 0.0)
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


def tls_of(front: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Returns the TLS files of a front, or None."""
    tls: Mapping[str, Any] | None = front.get("connection", {}).get("tls")
    return tls


def front_json(front: Mapping[str, Any], form: str) -> str:
    """Its options for the core. An access log for which no format was chosen has the format of our own log."""
    options = {name: value for name, value in front.items() if name != "kind"}
    if "connection" in options:
        connection = options["connection"]
        options["connection"] = {**connection, "access_log_format": connection["access_log_format"] or form}
    return json.dumps(options)


def logs_cpu(front: Mapping[str, Any], pool: str, form: str) -> bool:
    """Whether the access log of a front tells the CPU time of what this pool runs."""
    connection = front.get("connection", {})
    if connection.get("access_log") is None or front.get("pool", pool) != pool:
        return False
    return tells_cpu(connection["access_log_format"] or form)


def describe_queues(front: Mapping[str, Any]) -> str:
    """Returns the queues of a front as in its options: `mail, reports:3`."""
    return ", ".join(name if weight == 1 else f"{name}:{weight}" for name, weight in front["queues"])


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
