"""huey over Redis and over SQLite."""

from __future__ import annotations

import importlib
from typing import Any

from clutch.lab.drivers import marks
from clutch.lab.peers.jobs.job_peer import APP, NAME, At, JobPeer
from clutch.lab.peers.seam import Store


class Huey(JobPeer):
    def __init__(self, store: Store, kind: str) -> None:
        self.name, self.store, self.kind = f"huey {store} {kind}", store, kind
        self.requirements = ("huey", "redis", "hiredis") if store == "redis" else ("huey",)
        kept = "a blocking pop" if store == "redis" else "polled each 10 ms, fsync=True (synchronous=FULL)"
        self.settings = f"-k {kind}, no results, no health check; {kept}; one by one"

    def app(self, at: At) -> dict[str, Any]:
        huey = self.made(at)
        return {"huey": huey, "job": huey.task(name=NAME)(marks.job)}

    def made(self, at: At) -> Any:
        huey: Any = importlib.import_module("huey")
        if self.store == "redis":
            return huey.RedisHuey(NAME, url=at.redis, results=False)
        return huey.SqliteHuey(NAME, filename=str(at.database), results=False, fsync=True)

    def consumer(self, at: At, workers: int) -> list[str]:
        polled = ["-d", "0.01", "-m", "0.01"] if self.store == "sqlite" else []
        shape = ["-w", str(workers), "-k", self.kind, "-n", "-C", "-q", *polled]
        return ["-m", "huey.bin.huey_consumer", f"{APP}.huey", *shape]

    def connect(self, at: At) -> None:
        self.job = self.app(at)["job"]

    def enqueue_many(self, kwargs: dict[str, Any], count: int) -> None:
        for _ in range(count):
            self.job(**kwargs)


PEERS = (Huey("redis", "process"), Huey("redis", "thread"), Huey("sqlite", "process"))
