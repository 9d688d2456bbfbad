"""Control sockets of this user's servers and programs.

They are private: 0600, in a folder of 0700. Each speaks HTTP and answers only the same user and root
(docs/operating.md). Sockets of processes that are dead refuse connections and are passed over.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path

from clutch import _core

PATH_BYTES_MAX = 107
"""Room of a socket's address: sun_path of unix(7), less its end."""


def working_folder() -> str:
    """Empty where it has been removed."""
    with contextlib.suppress(OSError):
        return os.getcwd()
    return ""


def folder() -> Path:
    """Returns the folder with the sockets of this user's processes."""
    return _core.programs_folder()


def check_private(path: Path) -> None:
    """Checks that the folder is this user's: another's might hold another's socket. Raises PermissionError."""
    found = path.lstat()
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
    if not is_ours:
        raise PermissionError(f"{path} must be a folder of this user alone (0700): remove it, or set XDG_RUNTIME_DIR")


def all_of_user() -> list[Path]:
    """Raises PermissionError."""
    place = folder()
    try:
        check_private(place)
    except FileNotFoundError:
        return []
    return sorted(place.glob("*.sock"))


def place_for(name: str | os.PathLike[str]) -> Path:
    """Returns the socket of this process. Makes the folder and clears it of sockets of dead processes. Raises OSError.

    `name`: of the config, or of the program.
    """
    place = folder()
    place.mkdir(mode=0o700, exist_ok=True)
    check_private(place)
    for path in place.glob("*.sock"):
        pid = pid_in(path.name)
        if pid is not None and not is_alive(pid):
            remove_stale(path)
    return place / file_name(Path(name), os.getpid())


def file_name(name: Path, pid: int) -> str:
    """The pid makes it unique; the rest tells those of one config apart from others."""
    return f"{zlib.crc32(os.fsencode(name.resolve())):08x}-{pid}.sock"


def pid_in(name: str) -> int | None:
    text = name.removesuffix(".sock").rpartition("-")[2]
    return int(text) if text.isdecimal() else None


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def remove_stale(path: Path) -> None:
    """Removes a socket that nobody listens at."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            with address_of(path) as address:
                probe.connect(address)
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
        except OSError:
            return


@contextlib.contextmanager
def address_of(path: Path) -> Iterator[str]:
    """Yields an address for connect() of a path of any length: a long one goes by a descriptor of its folder."""
    if len(os.fsencode(path)) <= PATH_BYTES_MAX:
        yield os.fspath(path)
        return
    place = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{place}/{path.name}"
    finally:
        os.close(place)
