"""`thread`: as many slots as threads; the main thread serves tools that are bound to it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

from clutch import _core
from clutch._worker.profiles.base import Slot


class ThreadProfile:
    is_held_up = None

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.main: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.failure: BaseException | None = None

    def run(self, link: _core.WorkerLink, ready: Callable[[], None]) -> None:
        names = [f"clutch-slot-{nr}" for nr in range(self.threads)]
        slots = [threading.Thread(target=self._serve, args=(link,), name=name, daemon=True) for name in names]
        for slot in slots:
            slot.start()
        ready()
        left = self.threads
        while left:
            job = self.main.get()
            if job is None:
                left -= 1
            else:
                job()
        if self.failure is not None:
            raise self.failure

    def _serve(self, link: _core.WorkerLink) -> None:
        slot = Slot(link, self._in_main)
        try:
            link.serve(slot)
            slot.close()
        except BaseException as error:
            self.failure = error
        finally:
            self.main.put(None)

    def _in_main(self, function: Callable[[], Any]) -> None:
        """Runs a function in the main thread and waits for it. The function sees to its own failures."""
        done = threading.Event()

        def job() -> None:
            try:
                function()
            finally:
                done.set()

        self.main.put(job)
        done.wait()


def make(shape: dict[str, Any]) -> ThreadProfile:
    return ThreadProfile(shape["threads"])
