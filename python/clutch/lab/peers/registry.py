"""All peers: one line for each file."""

from __future__ import annotations

import importlib
from collections.abc import Iterable

from clutch.errors import ConfigError
from clutch.lab.peers.seam import Face, Peer

FILES = (
    "calls.futures",
    "calls.multiprocessing_pool",
    "calls.loky",
    "calls.pebble",
    "calls.deadpool",
    "calls.mpire",
    "calls.betapool",
    "servers.gunicorn",
    "servers.uvicorn",
    "servers.granian",
    "servers.peregrine",
    "servers.weft",
    "servers.h2corn",
    "servers.hypercorn",
    "jobs.celery",
    "jobs.dramatiq",
    "jobs.taskiq",
    "jobs.rq",
    "jobs.huey",
    "jobs.saq",
    "jobs.streaq",
    "jobs.flexiq",
    "jobs.mayu",
)
EVERYONE = "all"


def everyone() -> list[Peer]:
    found: list[Peer] = []
    for file in FILES:
        found += importlib.import_module(f"clutch.lab.peers.{file}").PEERS
    return found


def named(name: str) -> Peer:
    """Raises StopIteration where there is none."""
    return next(peer for peer in everyone() if peer.name == name)


def chosen(face: Face, names: str) -> list[Peer]:
    """Those of a face that are asked for: `all`, or names with commas between them; the first word of a name stands for
    all that begin with it. Raises ConfigError."""
    able = [peer for peer in everyone() if face in peer.faces]
    if names == EVERYONE:
        return able
    wanted = [part.strip() for part in names.split(",")]
    if unknown := [one for one in wanted if not any(answers(peer, one) for peer in able)]:
        allowed = listing(peer.name for peer in able)
        raise ConfigError(f"--peers {listing(unknown)}: nobody of that name for {face}; there are {allowed}")
    return [peer for peer in able if any(answers(peer, one) for one in wanted)]


def answers(peer: Peer, name: str) -> bool:
    return peer.name == name or peer.name.startswith(f"{name} ")


def listing(names: Iterable[str]) -> str:
    return ", ".join(names)
