"""`thread`: as many slots as threads; the main thread serves tools that are bound to it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

from clutch import _core
from clutch._worker.profiles.base import LOOK_AGAIN_SECONDS, Served, Slot, hold_in_slots
from clutch.errors import Interrupted


class ThreadProfile:
    is_held_up = was_lost = None

    def __init__(self, threads: int, served: Served | None) -> None:
        self.threads = threads
        self.served = served
        self.main: queue.SimpleQueue[Callable[[Slot], None] | None] = queue.SimpleQueue()
        self.failure: BaseException | None = None

    def run(self, worker: _core.Worker, ready: Callable[[], None]) -> None:
        names = [f"clutch-slot-{nr}" for nr in range(self.threads)]
        slots = [threading.Thread(target=self._serve, args=(worker,), name=name, daemon=True) for name in names]
        for slot in slots:
            slot.start()
        hold_in_slots(worker, self.served, is_shared=self.threads > 1)
        ready()
        # One for all, so that what is bound to this thread has one event loop.
        main = Slot(worker.slots)
        left = self.threads
        while left:
            job = self.main.get()
            if job is None:
                left -= 1
            else:
                job(main)
        main.close()
        if self.failure is not None:
            raise self.failure

    def _serve(self, worker: _core.Worker) -> None:
        slot = Slot(worker.slots, self._in_main)
        try:
            _core.serve(worker, slot)
            slot.close()
        except BaseException as error:
            self.failure = error
        finally:
            self.main.put(None)

    def _in_main(self, call: _core.Call) -> None:
        """Run a call in the main thread and wait for it. A call that is cancelled before it starts is withdrawn."""
        claim, done = threading.Lock(), threading.Event()

        def job(slot: Slot) -> None:
            if claim.acquire(blocking=False):
                slot.run(call)
                done.set()

        self.main.put(job)
        while not done.wait(LOOK_AGAIN_SECONDS):
            if call.is_abandoned and claim.acquire(blocking=False):
                raise Interrupted


def make(shape: dict[str, Any]) -> ThreadProfile:
    return ThreadProfile(shape["threads"], shape["served"])
