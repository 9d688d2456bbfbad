"""The dispatcher's end of the control socket: a thread that hears commands and one for each that it carries out.

Owns the socket's file. Promises that nobody who talks, or is silent, holds up the stop: no thread of it is waited for
but for a moment, and the file is gone at the end. That it goes on when threads or descriptors are short. That a copy of
the process, which has no such threads, can let go of it without a word to the original's.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clutch.control import protocol
from clutch.errors import ClutchError

log = logging.getLogger("clutch")

CONNECTIONS_MAX = 32
REQUEST_SECONDS_MAX = 10.0
CLOSE_SECONDS_MAX = 2.0
RETRY_SECONDS = 1.0
"""Until connections are accepted again, when there was no descriptor for one."""

Handle = Callable[[dict[str, Any]], Any]
"""A request to the result. A ClutchError or a ValueError is told to the one who asked."""


class Control:
    """Listens from its making on."""

    def __init__(self, path: Path, handle: Handle, trouble: int = logging.ERROR) -> None:
        """`trouble`: the log's level for a command that fails as none should."""
        self.path = path
        self._handle = handle
        self._trouble = trouble
        self._listener = listen(path)
        self._file = path.stat()
        self._connections: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._lock = threading.Lock()
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._accept, name="clutch-control", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self.remove_file()
            self._listener.close()
            raise OSError(errno.EAGAIN, f"control socket {path}: {error}") from error

    def remove_file(self) -> None:
        """Unless another dispatcher has put its own there."""
        with contextlib.suppress(OSError):
            if os.path.samestat(self.path.stat(), self._file):
                self.path.unlink()

    def close(self, seconds: float = CLOSE_SECONDS_MAX) -> None:
        """Waits so long for commands under way."""
        self.remove_file()
        self._is_closing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self._thread.join(CLOSE_SECONDS_MAX)
        self._listener.close()
        with self._lock:
            threads = list(self._threads)
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RD)
        for thread in threads if seconds else ():
            thread.join(seconds / len(threads))

    def leave_to_the_parent(self) -> None:
        """In a forked child: closes its copies. What a thread held is held for ever here."""
        self._listener.close()
        for connection in list(self._connections):
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                if self._is_closing.wait(RETRY_SECONDS):
                    return
                continue
            thread = threading.Thread(target=self._serve, args=(connection,), name="clutch-control", daemon=True)
            with self._lock:
                is_full = len(self._connections) >= CONNECTIONS_MAX
                if not is_full:
                    self._connections.add(connection)
                    self._threads.add(thread)
            if is_full:
                connection.close()
            else:
                self._start(thread, connection)

    def _start(self, thread: threading.Thread, connection: socket.socket) -> None:
        try:
            thread.start()
        except RuntimeError:  # there can be no more, or the interpreter is ending
            with self._lock:
                self._threads.discard(thread)
            self._serve(connection)

    def _serve(self, connection: socket.socket) -> None:
        try:
            # Whoever reads its answer no more is gone: nothing to tell anybody.
            with connection, contextlib.suppress(OSError):
                connection.settimeout(REQUEST_SECONDS_MAX)
                protocol.check_peer(connection)
                protocol.send(connection, self._answer(connection))
        finally:
            with self._lock:
                self._connections.discard(connection)
                self._threads.discard(threading.current_thread())

    def _answer(self, connection: socket.socket) -> dict[str, Any]:
        try:
            request = protocol.receive(connection, protocol.REQUEST_BYTES_MAX)
            return {"result": self._handle(request)}
        except (ClutchError, ValueError, TimeoutError) as error:
            return {"error": str(error) or type(error).__name__}
        except OSError:
            raise
        except Exception as error:
            log.log(self._trouble, "a command on the control socket failed", exc_info=True)
            return {"error": f"{type(error).__name__}: {error}"}


def open_default(config: Path, handle: Handle, trouble: int = logging.ERROR) -> Control:
    """In this user's folder, which is made and cleared of what dead dispatchers have left. Raises OSError."""
    folder = protocol.folder()
    folder.mkdir(mode=0o700, exist_ok=True)
    protocol.check_private(folder)
    for path in folder.glob("*.sock"):
        pid = protocol.pid_in(path.name)
        if pid is not None and not protocol.is_alive(pid):
            remove_stale(path)
    return Control(folder / protocol.name_of(config, os.getpid()), handle, trouble)


def open_at(path: Path, handle: Handle) -> Control:
    """Where the configuration says. Raises OSError, also when another dispatcher listens there."""
    if path.is_socket():
        remove_stale(path)
    return Control(path, handle)


def remove_stale(path: Path) -> None:
    """Removes a socket that nobody listens at."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            with protocol.address_of(path) as address:
                probe.connect(address)
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
        except OSError:
            return


def listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    try:
        # The file has these rights from its first moment on.
        os.fchmod(listener.fileno(), 0o600)
        with protocol.address_of(path) as address:
            listener.bind(address)
        listener.listen(protocol.BACKLOG)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"control socket {path}: {error.strerror or error}") from error
    return listener
