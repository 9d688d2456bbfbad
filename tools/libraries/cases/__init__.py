"""The cases of the atlas: a file for each field, an entry for each case."""

from __future__ import annotations

from . import (
    arrays,
    cloud,
    databases,
    embedded,
    formats,
    http,
    learning,
    loops,
    media,
    messages,
    randoms,
    repositories,
    science,
    solvers,
    texts,
    watching,
    web,
)
from .case import STANDARD, Case

FIELDS: dict[str, list[Case]] = {
    "Arrays and frames": arrays.CASES,
    "Machine learning and vectors": learning.CASES,
    "Science and maps": science.CASES,
    "Mathematics and solvers": solvers.CASES,
    "Images, sound and documents": media.CASES,
    "Texts and search": texts.CASES,
    "Random numbers": randoms.CASES,
    "Databases with a server": databases.CASES,
    "Databases and files": embedded.CASES,
    "HTTP": http.CASES,
    "Messages and calls": messages.CASES,
    "Clouds and models": cloud.CASES,
    "Web frameworks": web.CASES,
    "Loops, threads and processes": loops.CASES,
    "Logs, metrics and traces": watching.CASES,
    "Formats and keys": formats.CASES,
    "Repositories": repositories.CASES,
}
CASES = [case for cases in FIELDS.values() for case in cases]

__all__ = ["CASES", "FIELDS", "STANDARD", "Case"]
