"""hypercorn."""

from __future__ import annotations

from clutch.lab.peers.seam import Face
from clutch.lab.peers.servers.server import BIND, ServerPeer


class Hypercorn(ServerPeer):
    name = "hypercorn"
    requirements = ("hypercorn[uvloop]",)
    settings = "worker class uvloop, as its page on configuration has it; no access log"

    def command(self, app: str, face: Face, workers: int) -> list[str]:
        flags = ["--worker-class", "uvloop", "--workers", str(workers), "--bind", BIND, "--log-level", "warning"]
        return ["hypercorn", *flags, f"{face}:{app}"]


PEERS = (Hypercorn(),)
