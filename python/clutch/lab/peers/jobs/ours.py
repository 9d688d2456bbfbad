"""Clutch's own jobs at the work that its peers get: the same function, the same marks, and the Redis of theirs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from clutch.lab.drivers import marks
from clutch.lab.drivers.jobs import ClutchQueue, Queue, Ran
from clutch.lab.peers.jobs import our_tools
from clutch.lab.peers.jobs.marked import Marked
from clutch.lab.peers.jobs.redis_server import RedisServer
from clutch.lab.setting import Setting
from clutch.lab.work import JobRun


def order_of(work: JobRun, setting: Setting, store: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "clutch", "work", our_tools.__name__, *setting.flags().split()]
    return {**work.order(setting), "queue": __name__, "backend": store, "command": command}


def opened(order: dict[str, Any], folder: Path) -> Queue:
    return OurQueue(order, folder)


class OurQueue(Marked, ClutchQueue):
    def __init__(self, order: dict[str, Any], folder: Path) -> None:
        os.environ.update(marks.environment(order["module"], order["name"], folder))
        self.folder = folder
        self.redis = RedisServer(folder) if order["backend"] == "redis" else None
        store = order["store"] if self.redis is None else self.redis.url
        ClutchQueue.__init__(self, {**order, "name": marks.native().__name__, "store": store}, folder)

    def take(self) -> list[Ran]:
        self.ids.clear()
        return super().take()
