"""The dispatcher's end of the control socket: a thread that hears commands and one for each that it carries out.

Owns the socket's file. Promises that nobody who talks, or is silent, holds up the stop: no thread of it is waited for
but for a moment, and the file is gone at the end.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clutch.cli import control, logs
from clutch.cli.pidfile import is_alive
from clutch.errors import ClutchError

CONNECTIONS_MAX = 32
REQUEST_SECONDS_MAX = 10.0
CLOSE_SECONDS_MAX = 2.0

Handle = Callable[[dict[str, Any]], Any]
"""A request to the result. A ClutchError or a ValueError is told to the one who asked."""


class Control:
    """Listens from its making on."""

    def __init__(self, path: Path, handle: Handle) -> None:
        self.path = path
        self._handle = handle
        self._listener = listen(path)
        self._file = path.stat()
        self._connections: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._accept, name="clutch-control", daemon=True)
        self._thread.start()

    def remove_file(self) -> None:
        """Unless another dispatcher has put its own there."""
        with contextlib.suppress(OSError):
            if os.path.samestat(self.path.stat(), self._file):
                self.path.unlink()

    def close(self) -> None:
        self.remove_file()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self._thread.join(CLOSE_SECONDS_MAX)
        self._listener.close()
        with self._lock:
            threads = list(self._threads)
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RD)
        for thread in threads:
            thread.join(CLOSE_SECONDS_MAX / len(threads))

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,), name="clutch-control", daemon=True)
            with self._lock:
                is_full = len(self._connections) >= CONNECTIONS_MAX
                if not is_full:
                    self._connections.add(connection)
                    self._threads.add(thread)
            if is_full:
                connection.close()
            else:
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            # Whoever reads its answer no more is gone: nothing to tell anybody.
            with connection, contextlib.suppress(OSError):
                connection.settimeout(REQUEST_SECONDS_MAX)
                control.check_peer(connection)
                control.send(connection, self._answer(connection))
        finally:
            with self._lock:
                self._connections.discard(connection)
                self._threads.discard(threading.current_thread())

    def _answer(self, connection: socket.socket) -> dict[str, Any]:
        try:
            request = control.receive(connection, control.REQUEST_BYTES_MAX)
            return {"result": self._handle(request)}
        except (ClutchError, ValueError, TimeoutError) as error:
            return {"error": str(error) or type(error).__name__}
        except OSError:
            raise
        except Exception as error:
            logs.log.exception("a command on the control socket failed")
            return {"error": f"{type(error).__name__}: {error}"}


def open_default(config: Path, handle: Handle) -> Control:
    """In this user's folder, which is made and cleared of what dead dispatchers have left. Raises OSError."""
    folder = control.folder()
    folder.mkdir(mode=0o700, exist_ok=True)
    control.check_private(folder)
    for path in folder.glob("*.sock"):
        pid = control.pid_in(path.name)
        if pid is not None and not is_alive(pid):
            remove_stale(path)
    return Control(folder / control.name_of(config, os.getpid()), handle)


def open_at(path: Path, handle: Handle) -> Control:
    """Where the configuration says. Raises OSError, also when another dispatcher listens there."""
    if path.is_socket():
        remove_stale(path)
    return Control(path, handle)


def remove_stale(path: Path) -> None:
    """Removes a socket that nobody listens at."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            with control.address_of(path) as address:
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
        with control.address_of(path) as address:
            listener.bind(address)
        listener.listen(control.BACKLOG)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"control socket {path}: {error.strerror or error}") from error
    return listener
