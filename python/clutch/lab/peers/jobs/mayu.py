"""mayu over Redis."""

from __future__ import annotations

import importlib
from typing import Any

from clutch.lab.drivers import marks
from clutch.lab.peers.jobs.job_peer import APP, NAME, At, JobPeer


class Mayu(JobPeer):
    name = "mayu"
    requirements = ("mayu",)
    needs_python = (3, 13)
    settings = "--mode auto: threads without the GIL, else processes; no results; send()"

    def app(self, at: At) -> dict[str, Any]:
        mayu: Any = importlib.import_module("mayu")
        app = mayu.App(broker=at.redis)
        return {"app": app, "job": app.task(name=NAME)(marks.native())}

    def consumer(self, at: At, workers: int) -> list[str]:
        shape = ["--processes", str(workers), "--log-level", "WARNING"]
        return ["-m", "mayu", "worker", f"{APP}:app", *shape]

    def connect(self, at: At) -> None:
        self.job = self.app(at)["job"]

    def enqueue_many(self, kwargs: dict[str, Any], count: int) -> None:
        for _ in range(count):
            self.job.send(**kwargs)


PEERS = (Mayu(),)
