"""Clutch over Redis and over SQLite."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from benches.jobs.contestant import AsyncContestant, Contestant


def tool_of(job: str) -> Any:
    return getattr(importlib.import_module("benches.jobs.clutch_tools"), job)


class Clutch(Contestant):
    """A process for each slot; rows that ask for another profile set it."""

    name = "clutch"
    settings = "many: Jobs.enqueue_many"
    query = ""
    """Behind the URL."""
    profile = "process"
    strategy = "pipelined"

    @property
    def folder(self) -> Path:
        """None of its own: it is installed where the bench runs."""
        return Path(__file__).resolve().parents[3]

    def missing(self) -> str | None:
        try:
            clutch = importlib.import_module("clutch")
        except ImportError as failure:
            return f"not importable: {failure}"
        return None if hasattr(clutch, "Jobs") else "clutch.Jobs does not exist yet"

    def versions(self) -> str:
        return f"clutch {importlib.import_module('clutch').__version__}"

    def app(self, url: str) -> dict[str, Any]:
        return {"jobs": importlib.import_module("clutch").Jobs(url + self.query, strategy=self.strategy)}

    def consumer(self, url: str, slots: int) -> list[str]:
        size = ["--workers", str(slots)] if self.profile == "process" else ["--workers", "1", "--tasks", str(slots)]
        shape = ["--queues", "default", *size]
        return [
            "-m",
            "clutch",
            "work",
            "benches.jobs.clutch_tools",
            "--store",
            url + self.query,
            *shape,
            "--profile",
            self.profile,
        ]

    def connect(self, url: str) -> None:
        self._jobs = self.app(url)["jobs"]

    def enqueue(self, job: str, count: int) -> None:
        function, enqueue = tool_of(job), self._jobs.enqueue
        for _ in range(count):
            enqueue(function)

    def enqueue_many(self, job: str, count: int) -> None:
        function, chunk = tool_of(job), 1_000
        for begin in range(0, count, chunk):
            self._jobs.enqueue_many(function, [()] * min(chunk, count - begin))


class ClutchSqlite(Clutch):
    """The same, over a file."""

    name = "clutch sqlite"
    store = "sqlite"
    settings = "synchronous=FULL for all commits, also of claims and ends; many: Jobs.enqueue_many"
    query = "?synchronous=extra"


class ClutchSqliteNormal(Clutch):
    """The same, where no commit waits for the disk."""

    name = "clutch sqlite normal"
    store = "sqlite"
    settings = "synchronous=NORMAL; many: Jobs.enqueue_many"
    query = "?synchronous=normal"


class ClutchSingle(Clutch):
    """For the sweep: one connection, one caller at a time."""

    name = "clutch single"
    store = "sweep"
    strategy = "single"


class ClutchPool(Clutch):
    """For the sweep: each enqueue by one of four connections."""

    name = "clutch pool"
    store = "sweep"
    strategy = "pool"


class ClutchCheckout(Clutch):
    """For the sweep: each enqueue by one of four connections that is free."""

    name = "clutch checkout"
    store = "sweep"
    strategy = "checkout"


class ClutchAsyncio(AsyncContestant, Clutch):
    """For the sweep: the callers are tasks of a loop."""

    name = "clutch asyncio"
    store = "sweep"

    async def open(self, url: str) -> None:
        self._store = self.app(url)["jobs"]

    async def put(self, job: str) -> Any:
        return await self._store.aenqueue(tool_of(job))
