"""What servers have in common."""

from __future__ import annotations

import sys
from abc import abstractmethod
from typing import Any

from clutch.lab.peers.seam import Face, Peer
from clutch.lab.work import App, Work

HOST = "127.0.0.1"
BIND = f"{HOST}:{{port}}"
PLACE = ("--host", HOST, "--port", "{port}")
"""The driver puts the port there."""


class ServerPeer(Peer):
    """A server of apps, started as `python -m MODULE`."""

    faces = ("asgi", "wsgi")

    @abstractmethod
    def command(self, app: str, face: Face, workers: int) -> list[str]:
        """The module, and its arguments."""

    def order(self, work: Work, face: Face, workers: int) -> dict[str, Any]:
        assert isinstance(work, App)
        return {
            "kind": "http",
            "command": [sys.executable, "-m", *self.command(work.target, face, workers)],
            "is_clutch": False,
            "requests": [one.as_data() for one in work.requests],
        }
