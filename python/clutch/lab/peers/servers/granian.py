"""granian, in both modes of its runtime."""

from __future__ import annotations

from clutch.lab.peers.seam import Face
from clutch.lab.peers.servers.server import PLACE, ServerPeer


class Granian(ServerPeer):
    requirements = ("granian[uvloop]",)

    def __init__(self, mode: str, when: str) -> None:
        self.name, self.mode = f"granian {mode}", mode
        self.settings = f"--runtime-mode {mode}, which its page has for {when}; HTTP/1 only, no WebSockets, uvloop"

    def command(self, app: str, face: Face, workers: int) -> list[str]:
        flags = ["--interface", face, "--http", "1", "--no-ws", "--runtime-mode", self.mode]
        loop = ["--loop", "uvloop"] if face == "asgi" else []
        return ["granian", app, "--workers", str(workers), *flags, *loop, "--log-level", "warning", *PLACE]


PEERS = (Granian("st", "few processes"), Granian("mt", "many CPUs"))
