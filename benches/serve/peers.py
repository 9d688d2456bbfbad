"""Servers of the lab with other flags: what their pages leave open, so that the best of it is the peer."""

from __future__ import annotations

from clutch.lab.peers import registry
from clutch.lab.peers.seam import Face
from clutch.lab.peers.servers.server import ServerPeer


class Varied(ServerPeer):
    def __init__(self, name: str, of: str, *flags: str, needs: tuple[str, ...] = ()) -> None:
        base = registry.named(of)
        assert isinstance(base, ServerPeer)
        self.name, self.base, self.flags = name, base, flags
        self.requirements = (*base.requirements, *needs)
        self.settings = f"{of}: {base.settings}; with {' '.join(flags)}"

    def command(self, app: str, face: Face, workers: int) -> list[str]:
        return [*self.base.command(app, face, workers), *self.flags]


GRANIAN_ASGI = (
    "granian st",
    "granian mt",
    *(Varied(f"granian {mode} 2 threads", f"granian {mode}", "--runtime-threads", "2") for mode in ("st", "mt")),
)
# Its page: few blocking threads for apps that answer within a millisecond; else its defaults. Not its backpressure:
# that bounds connections, and would leave out most of a hundred that are kept alive.
GRANIAN_WSGI = (
    "granian st",
    "granian mt",
    *(
        Varied(f"granian {mode} {count} blocking", f"granian {mode}", "--blocking-threads", count)
        for mode in ("st", "mt")
        for count in ("1", "2")
    ),
)
GUNICORN_SYNC = Varied("gunicorn sync", "gunicorn gthread", "-k", "sync", "--threads", "1")
GUNICORN_PRELOADED = Varied("gunicorn --preload", "gunicorn uvicorn", "--preload")
UVICORN_WEBSOCKETS = tuple(
    Varied(f"uvicorn {library}", "uvicorn httptools", "--ws", library, needs=(library.partition("-")[0],))
    for library in ("websockets", "websockets-sansio", "wsproto")
)
GRANIAN_WEBSOCKETS = Varied("granian websockets", "granian st", "--ws")
GRANIAN_RESPAWNING = Varied("granian respawning", "granian st", "--respawn-failed-workers")
GUNICORN_RECYCLING = Varied("gunicorn recycling", "gunicorn uvicorn", "--max-requests", "2000")
