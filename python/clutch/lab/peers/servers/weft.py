"""weft."""

from __future__ import annotations

from clutch.lab.peers.seam import Face
from clutch.lab.peers.servers.server import PLACE, ServerPeer


class Weft(ServerPeer):
    name = "weft"
    requirements = ("weft-server",)
    needs_python = (3, 12)
    settings = "defaults, as in its BENCHMARKS: its own loop, no access log"

    def command(self, app: str, face: Face, workers: int) -> list[str]:
        flags = ["--workers", str(workers), "--protocol", face, "--log-level", "warning"]
        return ["weft", app, *flags, *PLACE]


PEERS = (Weft(),)
