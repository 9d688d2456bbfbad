"""What an import leaves in the process that forked workers would lack or share: threads, connections, open databases,
event loops; and generators of random numbers, which they would all continue alike.

Looked at in the zygote before it forks. `ImportWatch` is around the import and notes which line of the user's started
what; what native code did is attributed to nobody, and found all the same.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import io
import os
import random
import signal
import socket
import stat
import sys
import threading
import types
import weakref
from typing import Any

Fds = dict[int, tuple[int, int]]
"""Descriptors with what tells their files apart: device and inode."""

OPENBLAS = "openblas"
REMADE_THREADS = (OPENBLAS, "jemalloc_bg_thd")
"""How names of threads begin that forks need not have. An at-fork handler of jemalloc (pyarrow, polars) has each child
do that thread's work itself."""
REOPENED_FILES = ("/proj.db",)
"""How paths end that forks may share: an at-fork handler of PROJ (pyproj, rasterio) has each child open its database
anew."""
OPENBLAS_COUNTS = (
    "scipy_openblas_get_num_threads64_",
    "scipy_openblas_get_num_threads",
    "openblas_get_num_threads64_",
    "openblas_get_num_threads",
)
"""Functions that tell how many threads a copy of OpenBLAS has. Its at-fork handler makes them again in each child."""
NUMPY_BITS = 128
"""Bits that numpy asks the system for, to seed a generator that is given no seed."""
QUEUES = {
    "anon_inode:inotify": "watches files",
    "anon_inode:[timerfd]": "set a timer",
    "anon_inode:[signalfd]": "waits for signals",
}
"""Descriptors of which each event reaches one process only."""
TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
LOOP = "made an event loop"
LISTENS = "listens on"
IDLE_LOOP = "made an event loop that never runs"
WAITING_TASK = "made a task for it:"
GPUS = ("/dev/nvidia", "/dev/kfd", "/dev/dri/")
PACKAGE = os.path.dirname(os.path.dirname(__file__))
TOLD_MAX = 3


class ImportWatch:
    """Around an import: who of the user's code starts threads and connects, and which generators the system seeds."""

    def __init__(self) -> None:
        self.tasks, self.fds, self.children = tasks(), descriptors(), children()
        self.starters: dict[str, str] = {}
        """Place in the user's code by the name of the thread or the address."""
        self._seeded: dict[int, weakref.ref[Any]] = {}
        self.entropy: set[int] = set()
        """Numbers that numpy has seeded generators with, when it was given none."""
        self.appended: set[int] = set()
        """Descriptors of files to which something is appended."""
        self._patched: list[tuple[Any, str, Any, Any]] = []
        """Holder, name, what was there, what is there meanwhile. Empty when the watch is over."""

    def __enter__(self) -> ImportWatch:
        self._watch_starts()
        self._watch_files()
        self._watch_seeds()
        return self

    def _watch_starts(self) -> None:
        watch, start, connect = self, threading.Thread.start, socket.socket.connect

        def start_noted(thread: threading.Thread) -> None:
            watch.note(thread.name)
            start(thread)

        def connect_noted(sock: socket.socket, address: Any) -> None:
            watch.note(address_text(address))
            connect(sock, address)

        self._patch(threading.Thread, "start", start_noted)
        self._patch(socket.socket, "connect", connect_noted)

    def _watch_files(self) -> None:
        open_noted = Opener(self)
        self._patch(builtins, "open", open_noted)
        self._patch(io, "open", open_noted)

    def _watch_seeds(self) -> None:
        watch, seed, bits = self, random.Random.seed, random.SystemRandom.getrandbits

        def seed_noted(generator: random.Random, a: Any = None, version: int = 2) -> None:
            watch._seeded.pop(id(generator), None)
            if a is None and watch._patched:
                watch._seeded[id(generator)] = weakref.ref(generator)
            seed(generator, a, version)

        def bits_noted(generator: random.SystemRandom, k: int) -> int:
            number = bits(generator, k)
            if k == NUMPY_BITS and watch._patched:
                watch.entropy.add(number)
            return number

        self._patch(random.Random, "seed", seed_noted)
        self._patch(random.SystemRandom, "getrandbits", bits_noted)  # `secrets.randbits` from then on

    def __exit__(self, *_: object) -> None:
        """What the target has patched meanwhile stays: its own calls ours, which only passes on from now on."""
        for holder, name, original, ours in self._patched:
            if vars(holder).get(name) is not ours:
                continue
            if original is None:
                delattr(holder, name)
            else:
                setattr(holder, name, original)
        self._patched.clear()

    def _patch(self, holder: Any, name: str, replacement: Any) -> None:
        self._patched.append((holder, name, vars(holder).get(name), replacement))  # None: it is inherited
        setattr(holder, name, replacement)

    @property
    def generators(self) -> list[Any]:
        """Instances of `random.Random` that the system has seeded."""
        return [generator for known in self._seeded.values() if (generator := known()) is not None]

    def note(self, what: str) -> None:
        if self._patched and (place := self.place()) is not None:
            self.starters.setdefault(what, place)

    def place(self) -> str | None:
        """The innermost line of the user's that runs; without one, the outermost of an installed package, as an app may
        be."""
        frame: types.FrameType | None = sys._getframe(1)
        outermost = None
        while frame is not None:
            file = frame.f_code.co_filename
            if is_users(file):
                return f"{short(file)}:{frame.f_lineno}"
            if is_installed(file):
                outermost = f"{short(file)}:{frame.f_lineno}"
            frame = frame.f_back
        return outermost

    def found(self) -> list[str]:
        """What is there now and was not before, in words."""
        descriptors = self._descriptors()
        found = [*self._threads(), *descriptors, *programs(self.children), *timers()]
        # A loop has some: only then are all objects looked through for it.
        if descriptors and (idle := idle_loops()) is not None:
            found = [IDLE_LOOP if one == LOOP else one for one in found] + idle
        return list(dict.fromkeys(found))

    def _threads(self) -> list[str]:
        python = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
        known = {thread.native_id for thread in python}
        native = [task for task in tasks() - self.tasks if task not in known]
        own = comm(os.getpid())
        names = [comm(task) for task in native]
        named = sorted({name for name in names if name not in (own, "") and not name.startswith(REMADE_THREADS)})
        unnamed = names.count(own) - (openblas_threads() if own in names else 0)
        told = [self._by("started thread", thread.name) for thread in python]
        if named:
            told.append(f"threads of native code ({', '.join(named[:TOLD_MAX])})")
        if unnamed > 0:
            told.append(f"{unnamed} thread{'s'[: unnamed > 1]} of native code, such as a pool of OpenMP")
        return told

    def _descriptors(self) -> list[str]:
        told = []
        for number, file in descriptors().items():
            if self.fds.get(number) != file and (text := self._described(number)) is not None:
                told.append(text)
        return told

    def _described(self, number: int) -> str | None:
        """None: a fork may share it."""
        try:
            target, mode = os.readlink(f"/proc/self/fd/{number}"), os.fstat(number).st_mode
            flags = fdinfo(number)
        except OSError:
            return None
        if stat.S_ISSOCK(mode):
            return self._socket(number)
        if target == "anon_inode:[eventpoll]":
            return LOOP
        if target in QUEUES:
            return QUEUES[target]
        if target.startswith(GPUS):
            return f"uses {target}"
        if stat.S_ISREG(mode) and "lock" in flags:
            return self._by("locked", target)
        is_elsewhere = not target.startswith("/") or target.startswith(("/dev/", "/memfd:", "/proc/", "/sys/"))
        if not stat.S_ISREG(mode) or is_elsewhere or target.endswith(REOPENED_FILES):
            return None
        # Whoever only appends has no place in the file. All others share one: what one process reads, another misses.
        if int(flags.get("flags", "0"), 8) & (os.O_ACCMODE | os.O_APPEND) == os.O_WRONLY | os.O_APPEND:
            self.appended.add(number)
            return None
        return self._by("opened", target)

    def _socket(self, number: int) -> str | None:
        with socket.socket(fileno=os.dup(number)) as sock:
            try:
                if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    return self._by(LISTENS, address_text(sock.getsockname()))
                peer = address_text(sock.getpeername())
            except OSError:
                own = sock.getsockname() if sock.family in (socket.AF_INET, socket.AF_INET6) else None
                return f"bound {address_text(own)}" if own and own[1] else None
            # A pair has no names: an event loop wakes itself with one.
            return self._by("connected to", peer) if peer else None

    def _by(self, did: str, what: str) -> str:
        place = self.starters.get(what)
        return f"{place} {did} {what}" if place else f"{did} {what}"


class Opener:
    """Stands for `open` while a watch lasts: an object, since a function in a class would become a method."""

    def __init__(self, watch: ImportWatch) -> None:
        self._watch, self._open = watch, io.open

    def __call__(self, file: Any, *args: Any, **kwargs: Any) -> Any:
        if type(file) is str or isinstance(file, os.PathLike):
            with contextlib.suppress(OSError, ValueError, TypeError):
                self._watch.note(os.path.realpath(os.fsdecode(file)))
        return self._open(file, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._open, name)

    def __reduce__(self) -> Any:
        return getattr, (io, "open")


@functools.cache
def foreign_folders() -> tuple[str, ...]:
    """Folders of the standard library, of installed packages and of Clutch, as given and with links resolved."""
    import site
    import sysconfig

    standard = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    installed = [*site.getsitepackages(), site.getusersitepackages(), "/usr/lib/python3/dist-packages"]
    folders = [path for path in (*standard, *installed, PACKAGE) if path]
    return tuple(f"{path}/" for path in {*folders, *map(os.path.realpath, folders)})


def is_installed(file: str) -> bool:
    """Returns whether a source file is of an installed package other than Clutch."""
    packages = "/site-packages/", "/dist-packages/"
    return any(part in file for part in packages) and not file.startswith(PACKAGE)


def is_users(file: str) -> bool:
    """Returns whether a source file is the user's: no part of the standard library, an installed package or Clutch."""
    return not file.startswith(("<", *foreign_folders()))


def tasks() -> set[int]:
    """Ids of this process's threads, Python's and others."""
    return {int(entry) for entry in os.listdir("/proc/self/task")}


def programs(before: set[int]) -> list[str]:
    """Programs that the import has started and that run: workers would share their pipes, and could not wait for their
    ends.

    Processes of multiprocessing, such as a manager, are meant to be shared. `before`: children from before an exec."""
    shared: set[int | None] = {*before}
    if "multiprocessing.process" in sys.modules:
        shared |= {child.pid for child in sys.modules["multiprocessing.process"].active_children()}
    started = (child for child in children() - shared if is_running(child) and not is_of_multiprocessing(child))
    return [f"started program {comm(child) or child}" for child in started]


def is_of_multiprocessing(pid: int) -> bool:
    """Returns whether multiprocessing has started this process for its own purposes, by its command line."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return b"from multiprocessing." in file.read()
    except OSError:
        return False


def is_running(pid: int) -> bool:
    """Returns whether the process has not ended, whoever has to wait for it still."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def children(pid: int | None = None) -> set[int]:
    """Of this process, or of another one."""
    folder = f"/proc/{pid or 'self'}/task"
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for task in os.listdir(folder):
            with contextlib.suppress(OSError), open(f"{folder}/{task}/children") as file:
                found.update(map(int, file.read().split()))
    return found


def descendants(pid: int) -> set[int]:
    found = children(pid)
    return found.union(*map(descendants, found))


def idle_loops() -> list[str] | None:
    """Tasks of event loops that do not run, and so never do: workers have their own. None: there is no such loop."""
    if "asyncio" not in sys.modules:
        return None
    import asyncio
    import gc

    # By their types: what else there is may answer to anything.
    loops = [one for one in gc.get_objects() if issubclass(type(one), asyncio.AbstractEventLoop)]
    idle = [loop for loop in loops if not (loop.is_running() or loop.is_closed())]
    return [f"{WAITING_TASK} {task_text(task)}" for loop in idle for task in asyncio.all_tasks(loop)] if idle else None


def task_text(task: Any) -> str:
    coroutine = task.get_coro()
    name, code = getattr(coroutine, "__qualname__", task.get_name()), getattr(coroutine, "cr_code", None)
    return f"{name} ({short(code.co_filename)}:{code.co_firstlineno})" if code is not None else name


def timers() -> list[str]:
    """Timers of the process, which a fork lacks."""
    return ["set a timer"] if any(signal.getitimer(kind)[0] for kind in TIMERS) else []


def stop_timers() -> None:
    for kind in TIMERS:
        signal.setitimer(kind, 0)


def comm(task: int) -> str:
    """The name of a thread of this process, or of another process."""
    try:
        with open(f"/proc/{task}/comm") as file:
            return file.read().strip()
    except OSError:
        return ""


def descriptors() -> Fds:
    found: Fds = {}
    for entry in os.listdir("/proc/self/fd"):
        try:
            status = os.fstat(int(entry))
        except OSError:  # that of the listing itself
            continue
        found[int(entry)] = status.st_dev, status.st_ino
    return found


def fdinfo(number: int) -> dict[str, str]:
    with open(f"/proc/self/fdinfo/{number}") as file:
        return {name: value.strip() for name, _, value in (line.partition(":") for line in file)}


def address_text(address: Any) -> str:
    if isinstance(address, tuple) and len(address) >= 2:
        return f"[{address[0]}]:{address[1]}" if ":" in str(address[0]) else f"{address[0]}:{address[1]}"
    return address.decode(errors="replace").replace("\0", "@") if isinstance(address, bytes) else str(address or "")


def openblas_threads() -> int:
    """Number of threads that copies of OpenBLAS have beside the main thread."""
    import ctypes

    with open("/proc/self/maps") as file:
        paths = {line.split(maxsplit=5)[-1].strip() for line in file if OPENBLAS in line}
    threads = 0
    for path in paths:
        try:
            library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        except OSError:
            continue
        count = next((getattr(library, name) for name in OPENBLAS_COUNTS if hasattr(library, name)), None)
        threads += count() - 1 if count is not None else 0
    return threads


def short(file: str) -> str:
    """The path as from the current folder, where it is below that."""
    try:
        relative = os.path.relpath(file)
    except OSError:  # the folder has been removed
        return file
    return file if relative.startswith("..") else relative


def numpy_generators(entropy: set[int]) -> list[Any]:
    """The bit generators of numpy that were seeded with one of these numbers."""
    module = sys.modules.get("numpy.random.bit_generator")
    if module is None or not entropy:
        return []
    found = all_of(module.BitGenerator)
    return [one for one in found if is_one_of(getattr(getattr(one, "seed_seq", None), "entropy", None), entropy)]


def is_one_of(value: object, entropy: set[int]) -> bool:
    """A seed may also be a list, or an array."""
    return type(value) is int and value in entropy


def all_of(kind: type) -> list[Any]:
    """Objects of this type that the garbage collector knows; no code of theirs is run. To be called once the import is
    over: what it has frozen is not frozen any more."""
    import gc

    gc.unfreeze()
    return [one for one in gc.get_objects() if issubclass(type(one), kind)]


def write_out(numbers: set[int]) -> None:
    """To be called before forks: what these regular files have not written yet, each fork would write."""
    for kind in (io.TextIOWrapper, io.BufferedWriter):  # the one writes to the other
        for file in all_of(kind):
            with contextlib.suppress(Exception):  # what is below it may be anything
                if kind.fileno(file) in numbers:
                    kind.flush(file)


def forget_seed_of_sqlite() -> None:
    """To be called before forks: SQLite has one generator for a process, which it seeds again when it next needs it."""
    module = sys.modules.get("_sqlite3")
    file = getattr(module, "__file__", None)
    if file is not None:
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(file).sqlite3_randomness(0, None)


def seed_anew(generators: list[Any], bit_generators: list[Any]) -> None:
    """In a fork: those that the system has seeded go on by themselves."""
    for generator in generators:
        random.Random.seed(generator)  # not by a method of the user's
    for bit_generator in bit_generators:
        with contextlib.suppress(Exception):  # of a type of the user's
            bit_generator.state = type(bit_generator)().state
