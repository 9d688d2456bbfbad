"""The seam of peers: what a comparison needs of each, and nothing else.

A peer is a value that imports nothing of the package that it stands for: it tells what to install and what the runner
is to start. The package is on the path of the runner and of what that starts, and of no other process.
"""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Literal

from clutch.lab.contender import Contender
from clutch.lab.load import Load
from clutch.lab.setting import Setting
from clutch.lab.work import Work

Face = Literal["calls", "asgi", "wsgi", "jobs"]
"""What a peer can do, of what Clutch does."""
Store = Literal["redis", "sqlite"]


class Peer(ABC):
    """Somebody else's pool, server or job queue, with the settings that its own pages call the fastest."""

    name: str
    faces: ClassVar[tuple[Face, ...]]
    requirements: tuple[str, ...] = ()
    """What pip installs for it; nothing: it comes with Python."""
    needs_python: ClassVar[tuple[int, int]] = (3, 11)
    settings: str
    """In words, with the reason or the page that names them."""
    store: Store | None = None
    """Where jobs wait: it is compared with Clutch over the same."""

    @abstractmethod
    def order(self, work: Work, face: Face, workers: int) -> dict[str, Any]:
        """What the runner is told; see `Work.order`."""

    def lacks(self) -> str | None:
        """What this machine and this Python lack for it, its packages apart; None: nothing."""
        if sys.version_info[:2] < self.needs_python:
            return "it needs Python {}.{}".format(*self.needs_python)
        return None

    def contender(self, work: Work, face: Face, workers: int, folder: Path | None, load: Load | None) -> Contender:
        """The peer at this work, with as many workers as Clutch has."""
        load = load or work.load(Setting("process", workers))
        return Contender(self.name, self.order(work, face, workers), load, environment(folder), workers=workers)


def environment(folder: Path | None) -> dict[str, str]:
    """Variables with which a peer's packages come first, the user's own code can be imported, and this Python is the
    one that programs find."""
    paths = [*([str(folder)] if folder is not None else []), os.getcwd(), os.environ.get("PYTHONPATH", "")]
    programs = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    return {"PYTHONPATH": os.pathsep.join(path for path in paths if path), "PATH": os.pathsep.join(programs)}
