"""h2corn."""

from __future__ import annotations

from clutch.lab.peers.seam import Face
from clutch.lab.peers.servers.server import BIND, ServerPeer


class H2corn(ServerPeer):
    name = "h2corn"
    faces = ("asgi",)
    requirements = ("h2corn[uvloop]",)
    settings = "uvloop, two runtime threads a worker (its default), no access log; over HTTP/1.1, as all here"

    def command(self, app: str, face: Face, workers: int) -> list[str]:
        return ["h2corn", app, "--workers", str(workers), "--loop", "uvloop", "--no-access-log", "--bind", BIND]


PEERS = (H2corn(),)
