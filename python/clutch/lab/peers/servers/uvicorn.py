"""uvicorn, with each of its compiled parsers of HTTP."""

from __future__ import annotations

from clutch.lab.peers.seam import Face
from clutch.lab.peers.servers.server import PLACE, ServerPeer


class Uvicorn(ServerPeer):
    faces = ("asgi",)

    def __init__(self, parser: str) -> None:
        self.name = f"uvicorn {parser}"
        self.parser = parser
        self.requirements = ("uvicorn", "uvloop", parser)
        self.settings = f"uvloop and {parser}, the faster of what its page on settings has; no access log"

    def command(self, app: str, face: Face, workers: int) -> list[str]:
        flags = ["--loop", "uvloop", "--http", self.parser, "--no-access-log", "--log-level", "warning"]
        return ["uvicorn", app, "--workers", str(workers), *flags, *PLACE]


PEERS = (Uvicorn("httptools"), Uvicorn("zttp"))
