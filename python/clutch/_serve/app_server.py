"""`clutch.serve` and `clutch.serving`: an app that a program serves, for `python main.py`, a notebook or a test.

The life of its pool and front is that of `clutch serve` (dispatcher.py). Promises to leave the program whole: handlers
of signals and of the log are as they were before, and nothing here ends the process. A program that ends stops what it
serves, before its threads are waited for.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from clutch._dispatcher import logs
from clutch._dispatcher.observer import Observer
from clutch._dispatcher.reload import import_watchfiles
from clutch._gunicorn.peers import host_and_port, keyword_of
from clutch._gunicorn.settings import LEVEL
from clutch._pool.caller import caller_path, refuse_in_subinterpreter
from clutch._process.inbox import NEVER_READY, Inbox
from clutch._process.life import run_until_signal
from clutch._serve.app_name import name_of_app
from clutch.config import compose
from clutch.config.layers import nearest, variable_name
from clutch.config.options import POOL, SERVE
from clutch.dispatcher import Dispatcher
from clutch.errors import ConfigError, Problem

if TYPE_CHECKING:
    from clutch.config import Config

ENDS = (signal.SIGINT, signal.SIGTERM)

_OPTIONS_OF_POOL = {option.name.partition(".")[0] for option in POOL.options}
_OPTIONS = {option.name.partition(".")[0] for option in SERVE.options} | _OPTIONS_OF_POOL

GUARD = """clutch.serve was called while a worker was importing this module.
Call it under a guard:

    if __name__ == "__main__":
        clutch.serve("main:app")
"""
NOT_MAIN = """clutch.serve waits for signals, which only the main thread receives. In another thread, use:

    with clutch.serving("package.module:app") as server:
        ...
"""


def serve(
    app: Any,
    *,
    bind: str | list[str] | None = None,
    host: str | None = None,
    port: int | None = None,
    workers: int | dict[str, int] | None = None,
    threads: int | None = None,
    profile: str | None = None,
    reload: bool = False,
    log_level: str | None = None,
    settings: Iterable[str] = (),
    **options: Any,
) -> None:
    """Serve an ASGI or WSGI app until Ctrl-C or SIGTERM, then wait for running requests and return.

    As `clutch serve`, in the main thread of a program:

        if __name__ == "__main__":
            clutch.serve("main:app", port=8000, workers=4)

    `app` is `"package.module:app"`, or an object that its module has by a name. `options` are those of `[fronts.serve]`
    and of its pool (docs/config.md): `timeout=10`, `factory=True`, `access_log="-"`, `recycle={"memory": "512MB"}`,
    `tls={"certificate": "web.pem", "key": "web.key"}`. `settings` are texts as of `--set`. A second signal ends running
    requests at once.

    `log_level` is that of Clutch's own log, which goes to stderr, or to where the program's `logging` sends it. Raises
    `ConfigError` for wrong options and for an app that does not start, `OSError` for an address that is taken. `reload`
    is for development (docs/developing.md): there an app that does not start waits for the next save.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError(NOT_MAIN)
    given = _given(locals(), options)
    server = AppServer(_configuration(app, given, settings, development=reload), reload, log_level)
    inbox = Inbox(ENDS)
    life = _Life(server, inbox)
    try:
        run_until_signal(life, inbox)
    finally:
        server._kept.close()
        inbox.restore()
        inbox.close()
    if error := server._failure or server._stop_failure:
        raise error


def serving(
    app: Any,
    *,
    bind: str | list[str] | None = None,
    host: str | None = None,
    port: int | None = None,
    workers: int | dict[str, int] | None = None,
    threads: int | None = None,
    profile: str | None = None,
    reload: bool = False,
    log_level: str | None = None,
    settings: Iterable[str] = (),
    **options: Any,
) -> AppServer:
    """Serve an app in the background, for tests and notebooks. Parameters as for `serve`; any thread may call it.

    Returns when the app answers. Port 0 takes a free one:

        with clutch.serving("web:app", port=0, workers=1) as server:
            urllib.request.urlopen(server.url)
    """
    given = _given(locals(), options)
    server = AppServer(_configuration(app, given, settings), reload, log_level)
    server._start()
    return server


def _given(parameters: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """The given options, by name."""
    given = {name: parameters[name] for name in ("bind", "workers", "threads", "profile")} | options
    host, port = parameters["host"], parameters["port"]
    if host is not None or port is not None:
        if given["bind"] is not None:
            raise TypeError(f"bind={given['bind']!r} and host={host!r}, port={port!r} are the same option: give one")
        given["bind"] = host_and_port(host, port)
    if isinstance(given.get("access_log"), bool):  # as in uvicorn
        given["access_log"] = "-" if given["access_log"] else None
    return {name: value for name, value in given.items() if value is not None}


def _unknown(name: str) -> Problem:
    """The error for an unknown keyword; names our option where the keyword is uvicorn's or granian's."""
    like, instead = keyword_of(name)
    if instead is not None:
        return Problem(f"{name}=", f"not an option of clutch.serve: {instead}")
    if like is not None:
        return Problem(f"{name}=", "no such option", nearest=like)
    known = sorted((_OPTIONS | set(inspect.signature(serve).parameters)) - {"app", "options"})
    return Problem(f"{name}=", "no such option", allowed=", ".join(known), nearest=nearest(name, known))


def _configuration(app: Any, given: dict[str, Any], settings: Iterable[str], *, development: bool = False) -> Config:
    """The configuration, as of a file with one front and its pool. Given options win over variables."""
    image = sys.modules.get("clutch._worker.image")
    if image is not None and image.is_here:
        raise RuntimeError(GUARD)
    refuse_in_subinterpreter()
    pool = given.get("pool", SERVE.default("pool"))
    front, own = {"app": name_of_app(app)}, {}
    places = {f"{SERVE.place}.app": "app"}
    problems = [_unknown(name) for name in given if name not in _OPTIONS]
    for name in _OPTIONS.intersection(given):
        # `threads` are the app's: those of the front are a setting.
        table, place = (own, f"pools.{pool}") if name in _OPTIONS_OF_POOL else (front, SERVE.place)
        table[name] = given[name]
        places[f"{place}.{name}"] = name
    raw = {"fronts": {"serve": front}, "pools": {pool: {"workers": 1, **own}}}
    overridden = {variable_name(place) for place in places}
    environ = {name: text for name, text in os.environ.items() if name not in overridden}
    sources = {place: f"{name}= of clutch.serve" for place, name in places.items()}
    try:
        file, more = Path.cwd() / "clutch.serve", {"settings": settings, "environ": environ, "sources": sources}
        config = compose(raw, file, development=development, **more)
    except ConfigError as error:
        raise ConfigError(problems=[*problems, *error.problems]) from None
    if problems:
        raise ConfigError(problems=problems)
    for spec in config.pools:
        spec.core["launch"]["sys_path"] = caller_path(spec.core["python"])
    return config


class AppServer:
    """A running app server, returned by `clutch.serving`. As a context manager, it stops the server at the end."""

    def __init__(self, config: Config, reload: bool = False, log_level: str | None = None) -> None:
        if reload:
            import_watchfiles()
        self._config = config
        self._log_level = log_level
        self._kept = contextlib.ExitStack()
        self._failure: ConfigError | None = None
        self._say: Callable[[int], None] = lambda _: None
        self._dispatcher = Dispatcher(config, reload=reload, observer=OfServer(self))
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._stopper: threading.Thread | None = None
        self._stop_failure: BaseException | None = None

    @property
    def addresses(self) -> list[str]:
        """Addresses that it listens on: `127.0.0.1:8000`, `unix:/run/web.sock`; empty after its end."""
        return [address for _, address, _ in self._addresses()]

    @property
    def url(self) -> str:
        """URL of the first address: `http://127.0.0.1:8000`."""
        for _, _, shown in self._addresses():
            return shown
        raise RuntimeError("this server is stopped and has no address")

    def reload(self) -> None:
        """Reload the code. Raise `ConfigError` if it does not start; the old code then keeps serving."""
        for pool in self._dispatcher.pools.values():
            pool.reload()

    def stop(self) -> None:
        """Shut down: wait up to `grace` for running requests, then end them. May be called again."""
        if self._pid != os.getpid():
            return  # of a copy of the process: nothing here is its own
        with self._lock:
            if self._stopper is None:
                self._dispatcher.stopping()
                self._stopper = threading.Thread(target=self._stop, name="clutch-stop", daemon=True)
                self._stopper.start()
        self._stopper.join()
        self._kept.close()
        _running.discard(self)
        if self._stop_failure is not None:
            raise self._stop_failure

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "stopped" if self._stopper is not None else ", ".join(self.addresses)
        return f"<clutch.AppServer {state}>"

    # ---- its life

    def _start(self) -> None:
        """Start, and return when the app answers."""
        try:
            self._begin()
            self._dispatcher.wait_ready()
        except BaseException:
            self.stop()
            raise

    def _begin(self) -> None:
        self._kept.enter_context(_own_log.taken(self._log_level))
        _stop_all_at_the_end()
        _running.add(self)
        for warning in self._config.warnings:
            logs.log.warning("%s", warning)
        self._dispatcher.start()

    def _stop(self) -> None:
        try:
            self._dispatcher.stop()
            logs.info("stopped")
        except BaseException as error:
            self._stop_failure = error

    def _never_ready(self, error: ConfigError) -> None:
        self._failure = error
        self._say(NEVER_READY)

    def _addresses(self) -> Iterator[tuple[str, str, str]]:
        return self._dispatcher.urls() if self._stopper is None else iter(())


class _Life:
    """`clutch.serve`: the life of a server that its program waits for."""

    def __init__(self, server: AppServer, inbox: Inbox) -> None:
        self._server = server
        server._say = inbox.say

    def begin(self) -> None:
        self._server._begin()

    def carry_out(self, number: int) -> bool:
        return number in ENDS

    def ending(self, reason: int) -> None:
        if reason != NEVER_READY:
            logs.info(f"{signal.Signals(reason).name}: stopping; send another signal to end running requests at once")

    def end(self) -> None:
        with contextlib.suppress(BaseException):  # raised by `serve`
            self._server.stop()

    def hurry(self, number: int) -> None:
        if number in ENDS:
            for pool in self._server._dispatcher.pools.values():
                pool.kill_workers()


class OfServer(Observer):
    """Tells a server that its app does not start."""

    def __init__(self, server: AppServer) -> None:
        self._server = server

    def failed(self, error: ConfigError) -> None:
        self._server._never_ready(error)


class OwnLog:
    """Sends our log to stderr while servers run, unless the program has configured it, and restores it afterwards."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._servers = 0
        self._before: tuple[list[logging.Handler], bool, int] = ([], True, logging.NOTSET)

    @contextlib.contextmanager
    def taken(self, level: str | None) -> Iterator[None]:
        if level is not None and level not in LEVEL.names:
            raise ConfigError(f"log_level={level!r} is not a log level; allowed: {LEVEL.allowed}")
        with self._lock:
            self._begin(level)
        try:
            yield
        finally:
            with self._lock:
                self._end()

    def _begin(self, level: str | None) -> None:
        log = logs.log
        if not self._servers:
            self._before = (log.handlers[:], log.propagate, log.level)
        self._servers += 1
        if not log.hasHandlers():
            logs.set_up("text", level or "info")
        elif level is not None:
            log.setLevel(level.upper())

    def _end(self) -> None:
        log, (handlers, propagate, level) = logs.log, self._before
        self._servers -= 1
        if self._servers:
            return
        for handler in set(log.handlers) - set(handlers):
            handler.close()
        log.handlers[:], log.propagate = handlers, propagate
        log.setLevel(level)


_own_log = OwnLog()

_running: weakref.WeakSet[AppServer] = weakref.WeakSet()


@functools.cache
def _stop_all_at_the_end() -> None:
    """Stop the servers before the interpreter joins threads: a stop starts threads, which is impossible later."""
    threading._register_atexit(_stop_all)  # type: ignore[attr-defined]


def _forget_all() -> None:
    """In a forked copy: the servers, and the threads that could stop them, belong to the original."""
    _running.clear()


os.register_at_fork(after_in_child=_forget_all)


def _stop_all() -> None:
    for server in list(_running):
        try:
            server.stop()
        except Exception:
            logging.getLogger("clutch").exception("shutdown failed")
