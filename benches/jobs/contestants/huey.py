"""huey over Redis and over SQLite."""

from __future__ import annotations

from typing import Any

from benches.jobs import work
from benches.jobs.contestant import Contestant
from benches.jobs.sqlite import path_of


class Huey(Contestant):
    """A list of Redis and a blocking pop in each thread."""

    name = "huey"
    requirements = ("huey", "redis", "hiredis")
    settings = "RedisHuey, results=False; many: task.map, which enqueues one by one"
    _worker = "thread"

    def app(self, url: str) -> dict[str, Any]:
        huey = self._make(url)
        return {"huey": huey, "jobs": {name: huey.task()(getattr(work, name)) for name in ("mark", "stamp")}}

    def _make(self, url: str) -> Any:
        from huey import RedisHuey

        return RedisHuey("bench", url=url, results=False)

    def consumer(self, url: str, slots: int) -> list[str]:
        shape = ["-w", str(slots), "-k", self._worker]
        return ["-m", "huey.bin.huey_consumer", "benches.jobs.app.huey", *shape, "-n", "-C", "-q"]

    def connect(self, url: str) -> None:
        self._jobs = self.app(url)["jobs"]

    def enqueue(self, job: str, count: int) -> None:
        task = self._jobs[job]
        for _ in range(count):
            task()

    def enqueue_many(self, job: str, count: int) -> None:
        self._jobs[job].map([()] * count)


class HueySqlite(Huey):
    """Polls with a delay that backs off while the queue is empty."""

    name = "huey sqlite"
    store = "sqlite"
    settings = "SqliteHuey, results=False, fsync=True (synchronous=FULL), WAL; many: task.map, one by one"

    def _make(self, url: str) -> Any:
        from huey import SqliteHuey

        return SqliteHuey("bench", filename=str(path_of(url)), results=False, fsync=True)

    def consumer(self, url: str, slots: int) -> list[str]:
        return [*super().consumer(url, slots), "-d", "0.01", "-m", "0.01"]
