"""taskiq over a list of Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from benches.jobs import work
from benches.jobs.contestant import AsyncContestant, spread


class Taskiq(AsyncContestant):
    """The list broker, which acknowledges nothing, takes one round trip less for each job than the stream broker."""

    name = "taskiq"
    requirements = ("taskiq[uv,orjson]", "taskiq-redis", "hiredis")
    settings = "ListQueueBroker, no result backend, ORJSONSerializer, uvloop; async jobs; many: gather of 100"

    def app(self, url: str) -> dict[str, Any]:
        from taskiq.serializers import ORJSONSerializer
        from taskiq_redis import ListQueueBroker

        broker = ListQueueBroker(url).with_serializer(ORJSONSerializer())
        functions = {"mark": work.mark_async, "stamp": work.stamp_async}
        jobs = {name: broker.register_task(function, task_name=name) for name, function in functions.items()}
        return {"broker": broker, "jobs": jobs}

    def consumer(self, url: str, slots: int) -> list[str]:
        processes, each = spread(slots)
        shape = ["--workers", str(processes), "--max-async-tasks", str(each), "--max-prefetch", "10"]
        quick = ["--ack-type", "when_received", "--no-parse", "--log-level", "WARNING"]
        return ["-m", "taskiq", "worker", "benches.jobs.app:broker", *shape, *quick]

    def loop_factory(self) -> Callable[[], asyncio.AbstractEventLoop]:
        import uvloop

        return uvloop.new_event_loop

    async def open(self, url: str) -> None:
        app = self.app(url)
        self._jobs = app["jobs"]
        await app["broker"].startup()

    async def put(self, job: str) -> Any:
        return await self._jobs[job].kiq()
