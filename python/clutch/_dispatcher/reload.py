"""Reloads of code and certificates: on SIGHUP, by command, and when files change (`clutch run --reload`).

If new code does not start, the old code stays in use; not with `--reload`, where nobody wants to see it.
"""

from __future__ import annotations

import contextlib
import glob
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clutch._dispatcher import logs
from clutch.errors import ClutchError, ConfigError, PoolClosed

if TYPE_CHECKING:
    from clutch._dispatcher.observer import Observer
    from clutch.config import Config

ASKED_MAX = 4
"""Maximum concurrent reloads that nobody waits for: all but the last are overtaken. The last thread waits for none, so
that there is always one to ask."""
WATCH_STEP_MS = 20
"""How long files must be unchanged before a reload: editors save in several steps, milliseconds apart."""
WATCH_TURN_MS = 200
"""How often the watch checks, while no file changes, whether it should end."""


PYTHON = (".py", ".pyx", ".pyd")
TEMPLATES = "templates"


class Reloader:
    """Reloads pools; a later reload overtakes an earlier one."""

    def __init__(
        self,
        pools: Mapping[str, Any],
        observer: Observer,
        read_files: Callable[[list[str]], Iterable[tuple[str, str | None]]] = lambda _: (),
        development: bool = False,
    ) -> None:
        """`read_files`: reads anew the files that go with these pools. Gives pairs of the option that names them, and
        why they cannot be used. `development`: no old code goes on, and the pool itself says what is wrong with the
        new one.
        """
        self._pools = pools
        self._observer = observer
        self._read_files = read_files
        self._development = development
        self._failed_is = "does not start" if development else "old in use"
        self._threads = ThreadPoolExecutor(ASKED_MAX, "clutch-reload")
        self._lock = threading.Lock()
        self._under_way = 0
        self._is_asked = False

    def ask(self) -> None:
        """Reload all pools soon; returns at once."""
        with self._lock:
            if not self._is_asked:
                self._is_asked = True
                self._threads.submit(self._asked)

    def _asked(self) -> None:
        self._is_asked = False
        self.reload(list(self._pools), waits=self._under_way < ASKED_MAX - 1)

    def reload(self, names: list[str], *, waits: bool = True) -> dict[str, str]:
        """Reload, and return why not: by pool (its new code), and by option (its files)."""
        self._begins()
        failed: dict[str, str] = {}
        try:
            failed = self._reload_files(names)
            with ThreadPoolExecutor(max(1, len(names))) as together:
                reasons = zip(names, together.map(lambda name: self._reload(name, waits), names), strict=True)
                failed |= {name: reason for name, reason in reasons if reason is not None}
        finally:
            self._ends(f"{self._failed_is}: {', '.join(failed)}" if failed else "serving")
        return failed

    def close(self) -> None:
        """Close. The pools are closed already, so its threads end."""
        self._threads.shutdown(cancel_futures=True)

    def _begins(self) -> None:
        with self._lock:
            self._under_way += 1
            self._observer.reloading()  # each: the service manager waits for the one after its own signal

    def _ends(self, status: str) -> None:
        with self._lock:
            self._under_way -= 1
            if self._under_way == 0:
                self._observer.ready(status)

    def _reload_files(self, names: list[str]) -> dict[str, str]:
        failed = {}
        for option, why in self._read_files(names):
            if why is None:
                logs.info(f"{option}: reloaded", option=option)
            else:
                logs.log.error("%s\n%s: the previous files stay in use", why, option)
                failed[option] = why
        return failed

    def _reload(self, name: str, waits: bool) -> str | None:
        logs.info(f"pool {name}: reloading", pool=name)
        try:
            self._pools[name].reload(*() if waits else (0,))
        except TimeoutError:
            return None  # whoever waits for the reloads before is told of this one's end
        except PoolClosed as error:
            return str(error)
        except ClutchError as error:
            if not self._development:
                logs.log.error("%s\npool %s: the old code stays in use", str(error).rstrip(), name)
            return str(error)
        logs.info(f"pool {name}: reloaded", pool=name, reloaded=True)
        return None


@dataclass(frozen=True, slots=True)
class Watched:
    """Which files mean new code: Python's, `.env`, what is in folders named `templates`, and those that are included. A
    pattern is a name (`*.yaml`, `gen_*.py`), or a path from here (`build`, `src/*.sql`), of a folder all below.
    """

    dirs: tuple[str, ...] = ()
    """Folders; empty: those of the config and the targets."""
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def folders(self) -> list[Path]:
        """Raises ConfigError for one that is none."""
        for folder in self.dirs:
            if not Path(folder).is_dir():
                raise ConfigError(f"--reload-dir: {folder!r} is no folder; allowed: a folder that is there")
        return [Path(folder).resolve() for folder in self.dirs]

    def has(self, path: Path) -> bool:
        if any(is_like(path, pattern) for pattern in self.exclude):
            return False
        if any(is_like(path, pattern) for pattern in self.include):
            return True
        return path.suffix in PYTHON or path.name.split(".")[:2] == ["", "env"] or TEMPLATES in path.parts


def is_like(path: Path, pattern: str) -> bool:
    whole = Path.cwd() / pattern
    return path.match(pattern) or path == whole or whole in path.parents


class Watcher:
    """Asks for a reload whenever files that mean new code change below these folders."""

    def __init__(self, folders: list[Path], reloader: Reloader, watched: Watched) -> None:
        self._folders = folders
        self._watched = watched
        self._reloader = reloader
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="clutch-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        watchfiles = import_watchfiles()
        # Leaves out folders such as .git and node_modules, and what editors leave behind.
        usual = watchfiles.DefaultFilter()
        changes = watchfiles.watch(
            *self._folders,
            watch_filter=lambda change, path: usual(change, path) and self._watched.has(Path(path)),
            step=WATCH_STEP_MS,
            rust_timeout=WATCH_TURN_MS,
            yield_on_timeout=True,
            stop_event=self._stop,
            raise_interrupt=False,
        )
        is_said = False
        for changed in changes:
            if not is_said:  # before the first turn is over nobody knows whether the kernel watches already
                logs.info(f"watching {', '.join(map(str, self._folders))}")
                is_said = True
            if not changed:
                continue
            paths = sorted({path for _, path in changed})
            for path in paths:
                forget_bytecode(Path(path))
            self._reloader.ask()
            logs.info(f"changed: {', '.join(paths)}")


def forget_bytecode(source: Path) -> None:
    """Remove the compiled file: Python considers it current if size and mtime in seconds are the same."""
    for compiled in (source.parent / "__pycache__").glob(f"{glob.escape(source.stem)}.*.pyc"):
        with contextlib.suppress(OSError):
            compiled.unlink()


def import_watchfiles() -> Any:
    try:
        import watchfiles
    except ImportError as error:
        raise ConfigError(f"--reload needs watchfiles: pip install 'clutch[reload]' ({error})") from error
    return watchfiles


def watched_folders(config: Config) -> list[Path]:
    """The folders of the config and of each target, without those inside of another."""
    folders = {config.file.resolve().parent}
    for pool in config.pools:
        tops = {name.partition(":")[0].partition(".")[0] for name in pool.values["target"].split(",")}
        for top in tops:
            for entry in map(Path, pool.core["launch"]["sys_path"]):
                if (entry / top).is_dir() or (entry / f"{top}.py").is_file():
                    folders.add((entry / top if (entry / top).is_dir() else entry).resolve())
                    break
    return sorted(one for one in folders if not any(other in one.parents for other in folders))
