"""taskiq over a list of Redis."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable
from typing import Any

from clutch.lab.drivers import marks
from clutch.lab.peers.jobs.job_peer import APP, NAME, AsyncJobPeer, At


class Taskiq(AsyncJobPeer):
    name = "taskiq"
    requirements = ("taskiq[orjson]", "taskiq-redis", "hiredis", "uvloop")
    settings = (
        "ListQueueBroker, which acknowledges nothing, with socket_timeout=None, or its workers end when idle for 5 s; "
        "no results, ORJSONSerializer, uvloop, arguments not parsed; 100 kiq() at a time"
    )

    def app(self, at: At) -> dict[str, Any]:
        redis: Any = importlib.import_module("taskiq_redis")
        serializers: Any = importlib.import_module("taskiq.serializers")
        # redis-py 8 gives up a blocking pop after 5 s, and a worker of taskiq that waits ends with it.
        broker = redis.ListQueueBroker(at.redis, socket_timeout=None).with_serializer(serializers.ORJSONSerializer())
        return {"broker": broker, "job": broker.register_task(marks.native(), task_name=NAME)}

    def consumer(self, at: At, workers: int) -> list[str]:
        quick = ["--max-prefetch", "10", "--ack-type", "when_received", "--no-parse", "--log-level", "WARNING"]
        return ["-m", "taskiq", "worker", f"{APP}:broker", "--workers", str(workers), *quick]

    def loop_factory(self) -> Callable[[], asyncio.AbstractEventLoop]:
        uvloop: Any = importlib.import_module("uvloop")
        return uvloop.new_event_loop

    async def open(self, at: At) -> None:
        app = self.app(at)
        self.job = app["job"]
        await app["broker"].startup()

    async def put(self, kwargs: dict[str, Any]) -> Any:
        return await self.job.kiq(**kwargs)


PEERS = (Taskiq(),)
