"""Where the packages of peers are: a folder for each, made by pip from what it names on PyPI, and kept.

One environment for all is impossible, as they want different versions of the same libraries; the user's own is not
touched. A folder is made beside its place and renamed into it, so that it is whole or not there.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from clutch.errors import ClutchError
from clutch.lab.peers.seam import Peer

SECONDS_MAX = 300.0
FAILURE_SECONDS = 3600.0
"""Time for which a failure is believed before it is tried again."""
REASON_CHARACTERS_MAX = 300


class NotInstalled(ClutchError):
    """Its packages could not be installed. The text says why."""


def root() -> Path:
    if given := os.environ.get("CLUTCH_PEERS"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "clutch" / "peers"


def folder_of(peer: Peer) -> Path | None:
    """Where its packages are or would be; None for what comes with Python."""
    if not peer.requirements:
        return None
    named = hashlib.sha256("\n".join(peer.requirements).encode()).hexdigest()[:8]
    return root() / f"{peer.name.partition(' ')[0]}-{python_tag()}-{named}"


def python_tag() -> str:
    """Such as py311, or py313t without the GIL."""
    free_threaded = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    return f"py{sys.version_info.major}{sys.version_info.minor}{free_threaded}"


def versions_of(peer: Peer) -> dict[str, str]:
    """Of all that is installed for it; empty where nothing is."""
    folder = folder_of(peer)
    if folder is None or not folder.is_dir():
        return {}
    found = ((one.name, one.version) for one in importlib.metadata.distributions(path=[str(folder)]))
    return {name: version for name, version in sorted(found) if name}


def failure_of(peer: Peer) -> str | None:
    """Why it could not be installed a while ago; None: it is not known to fail."""
    folder = folder_of(peer)
    if folder is None or folder.is_dir():
        return None
    kept = failure_file(folder)
    with contextlib.suppress(OSError):
        if time.time() - kept.stat().st_mtime < FAILURE_SECONDS:
            return kept.read_text()
    return None


def install(peer: Peer) -> Path | None:
    """The folder of its packages, which are installed unless they are there. Raises NotInstalled."""
    folder = folder_of(peer)
    if folder is None or folder.is_dir():
        return folder
    if reason := failure_of(peer):
        raise NotInstalled(
            f"{reason} (a while ago; it is tried again after an hour, or without {failure_file(folder)})"
        )
    root().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="installing-", dir=root()) as place:
        made = Path(place) / "packages"
        reason = run(installer(made, peer.requirements))
        if reason is not None:
            failure_file(folder).write_text(reason)
            raise NotInstalled(reason)
        failure_file(folder).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # somebody else was faster
            made.rename(folder)
    return folder


def ready(peer: Peer, tell: Callable[[str], object]) -> Path | None:
    """The folder of the packages of a peer that can run here. Raises NotInstalled where it cannot."""
    if reason := peer.lacks():
        raise NotInstalled(reason)
    if (folder := folder_of(peer)) is not None and not folder.is_dir():
        tell(f"{peer.name}: installing {', '.join(peer.requirements)}")
    return install(peer)


def failure_file(folder: Path) -> Path:
    return folder.with_name(folder.name + ".failed")


def installer(folder: Path, requirements: Sequence[str]) -> list[str]:
    """Raises NotInstalled where there is neither pip nor uv."""
    # What is compiled would name the folder's temporary place in its tracebacks.
    if importlib.util.find_spec("pip") is not None:
        flags = ["--quiet", "--disable-pip-version-check", "--no-warn-conflicts", "--no-compile", "--no-input"]
        return [sys.executable, "-m", "pip", "install", *flags, "--target", str(folder), *requirements]
    if (uv := shutil.which("uv")) is not None:
        where = ["--python", sys.executable, "--target", str(folder)]
        return [uv, "pip", "install", "--quiet", *where, *requirements]
    raise NotInstalled("this environment has no pip, and there is no uv")


def run(command: list[str]) -> str | None:
    """Why it has failed; None: it has not. All that it starts ends with it, also when this is interrupted."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    try:
        _, said = process.communicate(timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        return f"not installed within {SECONDS_MAX:.0f} s"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return None if process.returncode == 0 else reason_in(said)


def reason_in(said: str) -> str:
    """From the last line that names an error to the end, or else the last line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    named = [nr for nr, line in enumerate(lines) if line.lower().startswith("error")]
    kept = lines[named[-1] :] if named else lines[-1:]
    return " ".join(kept)[:REASON_CHARACTERS_MAX] or "the installer has failed without a word"
