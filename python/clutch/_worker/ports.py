"""Ports that code opens while a worker starts, such as one for metrics: old workers and new share them.

Each worker imports such code itself, and a reload starts new workers beside the old ones, so all open the same port.
The kernel lets them if each has set SO_REUSEPORT; each connection then reaches one of them. Only processes of one
dispatcher share: a port that anybody else has is in use, and the error says whose it is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from typing import Any

from clutch._worker.leftovers import comm, descendants

TABLES = {
    socket.SOCK_STREAM: (("/proc/net/tcp", "/proc/net/tcp6"), "0A"),
    socket.SOCK_DGRAM: (("/proc/net/udp", "/proc/net/udp6"), "07"),
}
"""Where the kernel lists sockets, and the state of those that hold a port: they listen, or have no peer."""


class SharedPorts:
    """While this lasts, `bind` shares its port with the other workers of the dispatcher, whose pid is `root`."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._bind = socket.socket.bind
        self._holder = socket.socket
        self._had = vars(self._holder).get("bind")

    def __enter__(self) -> SharedPorts:
        shared, bind = self, self._bind

        def bind_shared(sock: socket.socket, address: Any) -> None:
            others = shared.prepare(sock, address) if shared._root else []
            try:
                bind(sock, address)
            except OSError as error:
                if error.errno == errno.EADDRINUSE and others:
                    error.add_note(f"port {address[1]} is in use by {' and '.join(others)}")
                raise

        self._ours = bind_shared
        self._holder.bind = bind_shared  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        """What the target has patched meanwhile stays: its own calls ours, which only passes on from now on."""
        self._root = 0
        if vars(self._holder).get("bind") is self._ours:
            if self._had is None:
                del self._holder.bind  # type: ignore[misc]
            else:
                self._holder.bind = self._had  # type: ignore[method-assign]

    def prepare(self, sock: socket.socket, address: Any) -> list[str]:
        """Have the socket share its port, unless others have it. Returns these, in words."""
        try:
            kind, port = sock.type, address[1]
            if sock.family not in (socket.AF_INET, socket.AF_INET6) or not port or kind not in TABLES:
                return []
            held = holders(kind, port)
            family = owners({self._root, *descendants(self._root)}) if held else {}
            if held <= family.keys():
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            return [named(inode, family) for inode in sorted(held)]
        except (OSError, TypeError, IndexError):  # what is wrong with the address, `bind` says itself
            return []


def holders(kind: int, port: int) -> set[int]:
    """Inodes of the sockets that hold a port."""
    found = set()
    tables, state = TABLES[kind]  # type: ignore[index]
    for table in tables:
        with contextlib.suppress(OSError), open(table) as lines:
            next(lines)
            for line in lines:
                fields = line.split()
                if fields[3] == state and int(fields[1].rpartition(":")[2], 16) == port:
                    found.add(int(fields[9]))
    return found


def owners(pids: set[int]) -> dict[int, int]:
    """Inodes of sockets and the processes that have them."""
    return {inode: pid for pid in pids for inode in sockets(pid)}


def sockets(pid: int) -> Iterator[int]:
    with contextlib.suppress(OSError):
        for entry in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                kind, _, rest = os.readlink(f"/proc/{pid}/fd/{entry}").partition(":[")
                if kind == "socket":
                    yield int(rest[:-1])


def named(inode: int, family: dict[int, int]) -> str:
    """Who has a socket, in words."""
    if inode in family:
        return f"process {family[inode]} of this service, which does not share it: open it with SO_REUSEPORT"
    with contextlib.suppress(OSError):
        for pid in (int(entry) for entry in os.listdir("/proc") if entry.isdecimal()):
            if inode in sockets(pid):
                return f"process {pid} ({comm(pid)}), which is none of this service: end it, or take another port"
    return "a process that is none of this service: end it, or take another port"


def parent_of(pid: int) -> int:
    """0 if the process is gone."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])
    return 0
