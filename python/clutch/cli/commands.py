"""What the commands on the control socket do, in the dispatcher: requests to calls of the pools."""

from __future__ import annotations

import contextlib
import inspect
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from clutch.errors import NoSuchPool

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Commands:
    """One method for each command; its parameters are the request's other members."""

    def __init__(
        self,
        config: str,
        pools: Mapping[str, Any],
        reload: Callable[[list[str]], dict[str, str]],
        stop: Callable[[bool], None],
    ) -> None:
        self._config = config
        self._pools = pools
        self._reload = reload
        self._stop = stop

    def __call__(self, request: dict[str, Any]) -> Any:
        arguments = dict(request)
        name = arguments.pop("command", None)
        known = {"hello", "ps", "drain", "scale", "reload", "recycle", "stacks", "stop"}
        if name not in known:
            raise ValueError(f"no command {name!r}; allowed: {', '.join(sorted(known))}")
        method = getattr(self, name)
        try:
            inspect.signature(method).bind(**arguments)
        except TypeError as error:
            raise ValueError(f"command {name}: {error}") from error
        return method(**arguments)

    def hello(self) -> dict[str, Any]:
        return {"pid": os.getpid(), "config": self._config}

    def ps(self) -> dict[str, Any]:
        pools = [pool.stats() for pool in self._chosen(None).values()]
        for pool in pools:
            for worker in pool["workers"]:
                worker.update(process_facts(worker))
        return {**self.hello(), "age_s": age_seconds(os.getpid()), "pools": pools}

    def drain(self, pool: str | None = None, resume: bool = False) -> list[str]:
        chosen = self._chosen(pool)
        for one in chosen.values():
            one.resume() if resume else one.drain()
        return list(chosen)

    def scale(self, pool: str, min: int, max: int) -> list[str]:  # noqa: A002
        chosen = self._chosen(pool)
        for one in chosen.values():
            one.scale(min) if min == max else one.scale(min=min, max=max)
        return list(chosen)

    def reload(self, pool: str | None = None) -> dict[str, str]:
        """By pool, why the new code does not run: nothing, where it does."""
        return self._reload(list(self._chosen(pool)))

    def recycle(self, pool: str | None = None, nr: int | None = None) -> list[str]:
        chosen = self._chosen(pool)
        for one in chosen.values():
            one.recycle(nr)
        return list(chosen)

    def stacks(self, pool: str | None = None, nr: int | None = None, call: int | None = None) -> dict[str, str]:
        found: dict[str, str] = {}
        for one in self._chosen(pool).values():
            found.update(one.stacks(worker=nr, call=call))
        if not found:
            raise ValueError("no such call runs" if call is not None else "no such worker")
        return found

    def stop(self, now: bool = False) -> dict[str, Any]:
        self._stop(now)
        return self.hello()

    def _chosen(self, name: str | None) -> dict[str, Any]:
        if name is None:
            return dict(self._pools)
        if name not in self._pools:
            raise NoSuchPool(f"no pool {name!r}; allowed: {', '.join(self._pools)}", name=name)
        return {name: self._pools[name]}


def process_facts(worker: Mapping[str, Any]) -> dict[str, Any]:
    """Age and memory of a worker, where they can be known."""
    if worker["pid"] is None:
        return {"age_s": None}
    facts: dict[str, Any] = {"age_s": age_seconds(worker["pid"])}
    if worker.get("rss") is None:
        facts["rss"] = resident_bytes(worker["pid"])
    return facts


def age_seconds(pid: int) -> float | None:
    with contextlib.suppress(OSError, IndexError):
        started = int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19])
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started / CLOCK_TICKS)
    return None


def resident_bytes(pid: int) -> int | None:
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES
    return None
