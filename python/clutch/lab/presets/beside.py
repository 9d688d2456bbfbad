"""Peers of presets: installed where they are not, and told once where they cannot be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from clutch.lab.contender import Contender
from clutch.lab.load import Load
from clutch.lab.peers import packages, registry
from clutch.lab.peers.seam import Face, Peer
from clutch.lab.presets import Tell
from clutch.lab.work import Work


def peers(names: Sequence[str | Peer], notes: list[str], tell: Tell) -> Iterator[tuple[Peer, Path | None]]:
    """Those that can run here, with the folder of their packages. `notes`: why others cannot."""
    for peer in (registry.named(one) if isinstance(one, str) else one for one in names):
        try:
            folder = packages.ready(peer, tell)
        except packages.NotInstalled as error:
            if (note := f"{peer.name} is left out: {error}") not in notes:
                notes.append(note)
                tell(note)
        else:
            yield peer, folder


def beside(
    names: Sequence[str | Peer], work: Work, face: Face, workers: int, load: Load | None, notes: list[str], tell: Tell
) -> list[Contender]:
    return [peer.contender(work, face, workers, folder, load) for peer, folder in peers(names, notes, tell)]
