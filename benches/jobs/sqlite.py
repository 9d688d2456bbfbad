"""Stores of SQLite: a file each, and the pace at which its file system takes commits."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from pathlib import Path
from typing import Literal

_PREFIX = "sqlite:///"
Synchronous = Literal["FULL", "NORMAL"]


def url_of(folder: Path) -> str:
    """Of a database in that folder."""
    return f"{_PREFIX}{folder / 'jobs.db'}"


def path_of(url: str) -> Path:
    """The file that a URL names."""
    return Path(url.removeprefix(_PREFIX))


def commit_rate(folder: Path, count: int, payload_bytes: int, synchronous: Synchronous) -> float:
    """INSERT and COMMIT of one row at a time, WAL: what no queue on this file can exceed with a commit for each job."""
    with contextlib.closing(sqlite3.connect(folder / "floor.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={synchronous}")
        connection.execute("CREATE TABLE job (id INTEGER PRIMARY KEY, payload BLOB NOT NULL)")
        payload = bytes(payload_bytes)
        began = time.perf_counter()
        for _ in range(count):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO job (payload) VALUES (?)", (payload,))
            connection.execute("COMMIT")
        return count / (time.perf_counter() - began)


def file_system(folder: Path) -> str:
    """Its type, as the kernel names it: on tmpfs a commit costs no wait for a disk."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    over = [(place, kind) for place, kind in mounts if folder.is_relative_to(place)]
    return max(over, key=lambda mount: len(mount[0]))[1]
