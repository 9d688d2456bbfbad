"""peregrine."""

from __future__ import annotations

from clutch.lab.peers.seam import Face
from clutch.lab.peers.servers.server import PLACE, ServerPeer


class Peregrine(ServerPeer):
    name = "peregrine"
    requirements = ("peregrine-server[uvloop]",)
    settings = "defaults with uvloop, as in its BENCHMARKS: no access log, and one thread a worker for WSGI"

    def command(self, app: str, face: Face, workers: int) -> list[str]:
        return ["peregrine", "--workers", str(workers), "--protocol", face, "--log-level", "warning", *PLACE, app]


PEERS = (Peregrine(),)
