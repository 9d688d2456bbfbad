"""Where the packages of a peer are: `<prefix>/peers/NAME`, one folder each, installed by `benches.jobs.install`.

One environment for all is impossible: arq wants redis-py below 6, taskiq-redis 8 or above.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
from pathlib import Path

PEERS = Path(sys.prefix) / "peers"
_CLIENTS = frozenset({"redis", "hiredis"})


class Packages:
    """What pip installs for one peer."""

    name: str
    requirements: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """On the path of the peer's processes, and of no others."""
        return PEERS / self.name.partition(" ")[0]

    @property
    def failure(self) -> Path:
        """Why pip did not install it; the file is there only then."""
        return self.folder.with_suffix(".failed")

    @property
    def installed(self) -> Path:
        """The requirements that the folder was made of."""
        return self.folder / "installed.txt"

    def missing(self) -> str | None:
        """Why it cannot run here; None when it can."""
        if self.failure.exists():
            return f"cannot be installed: {self.failure.read_text().strip()}"
        return None if self.versions() else "not installed; `make bench-jobs` does it"

    def versions(self) -> str:
        """Of what was asked for, and of the client of Redis."""
        wanted = {_package(requirement) for requirement in self.requirements} | _CLIENTS
        found = {found.name: found.version for found in importlib.metadata.distributions(path=[str(self.folder)])}
        return ", ".join(f"{name} {version}" for name, version in sorted(found.items()) if name in wanted)


class RedisPy(Packages):
    """The bare client, for the floors."""

    name = "redis-py"
    requirements = ("redis[hiredis]",)


def _package(requirement: str) -> str:
    """`taskiq` of `taskiq[uv]>=0.12`."""
    return re.split(r"[\[<>=~! ]", requirement, maxsplit=1)[0]
