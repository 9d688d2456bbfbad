"""What the commands on the control socket do, in the dispatcher: requests to calls of the pools.

Pools go by the names that the mapping has for them, which are not their own where two have the same.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from clutch.errors import NoSuchPool

log = logging.getLogger("clutch")

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def working_folder() -> str:
    """Empty where it has been removed."""
    with contextlib.suppress(OSError):
        return os.getcwd()
    return ""


class Identity(NamedTuple):
    """Who answers: its config, and the folder that it was started in."""

    config: str
    """Of a program, what it is: its script, or what it is instead of one."""
    folder: str
    is_program: bool = False


class Commands:
    """One method for each command; its parameters are the request's other members."""

    def __init__(
        self,
        who: Identity,
        pools: Mapping[str, Any],
        reload: Callable[[list[str]], dict[str, str]],
        stop: Callable[[bool], None],
        http: Callable[[], dict[str, Any] | None] = lambda: None,
    ) -> None:
        self._who = who
        self._pools = pools
        self._reload = reload
        self._stop = stop
        self._http = http

    def __call__(self, request: dict[str, Any]) -> Any:
        arguments = dict(request)
        name = arguments.pop("command", None)
        known = {"hello", "http", "ps", "drain", "scale", "reload", "recycle", "stacks", "cancel", "stop"}
        if name not in known:
            raise ValueError(f"no command {name!r}; allowed: {', '.join(sorted(known))}")
        method = getattr(self, name)
        try:
            inspect.signature(method).bind(**arguments)
        except TypeError as error:
            raise ValueError(f"command {name}: {error}") from error
        return method(**arguments)

    def hello(self) -> dict[str, Any]:
        return {"pid": os.getpid(), **self._who._asdict()}

    def http(self) -> dict[str, Any] | None:
        """Where calls are taken, and with what token. None: nowhere, or not yet."""
        return self._http()

    def ps(self) -> dict[str, Any]:
        pools = []
        for name, pool in self._chosen(None).items():
            running = pool.running()
            pools.append({**pool.stats(), "name": name})
            for worker in pools[-1]["workers"]:
                of_number = running.get(f"{pool.name}/{worker['nr']}", [])
                own = [one for one in of_number if one["pid"] == worker["pid"]]
                worker.update(process_facts(worker), running=own)
        return {**self.hello(), "age_s": age_seconds(os.getpid()), "pools": pools}

    def drain(self, pool: str | None = None, resume: bool = False) -> list[str]:
        chosen = self._chosen(pool)
        for one in chosen.values():
            one.resume() if resume else one.drain()
        for name in chosen:
            say(f"pool {name}: {'takes work again' if resume else 'takes no more work'}, by command", pool=name)
        return list(chosen)

    def scale(self, pool: str, min: int, max: int) -> list[str]:  # noqa: A002
        chosen = self._chosen(pool)
        for one in chosen.values():
            one.scale(min) if min == max else one.scale(min=min, max=max)
        say(f"pool {pool}: {min if min == max else f'{min} to {max}'} workers, by command", pool=pool)
        return list(chosen)

    def reload(self, pool: str | None = None) -> dict[str, Any]:
        """`failed`: by pool, why the new code does not run; nothing, where it does."""
        names = list(self._chosen(pool))
        return {**self.hello(), "pools": names, "failed": self._reload(names)}

    def recycle(self, pool: str | None = None, nr: int | None = None, kill: bool = False) -> list[str]:
        chosen = self._chosen(pool)
        for one in chosen.values():
            one.recycle(nr, kill=True) if kill else one.recycle(nr)
        return list(chosen)

    def stacks(self, pool: str | None = None, nr: int | None = None, call: int | None = None) -> dict[str, str]:
        found: dict[str, str] = {}
        for name, one in self._chosen(pool).items():
            stacks = one.stacks(worker=nr, call=call)
            found.update({f"{name}/{worker.rpartition('/')[2]}": text for worker, text in stacks.items()})
        if not found and call is not None:
            raise ValueError(f"no call {call} runs; `clutch ps` lists those that do")
        if not found:
            workers = {
                f"{one['name']}/{worker['nr']}": worker for one in self.ps()["pools"] for worker in one["workers"]
            }
            if (worker := workers.get(f"{pool}/{nr}")) and worker["state"] == "stopped":
                raise ValueError(
                    f"worker {pool}/{nr} is stopped by a signal and cannot answer: kill -CONT {worker['pid']}"
                )
            known = list(workers)
            raise ValueError(f"no worker {pool}/{nr} that answers; there are: {', '.join(known) or 'none'}")
        return found

    def cancel(self, call: int, pool: str | None = None) -> str:
        """The pool that had it. Numbers of calls are their pool's own: two pools may have the same."""
        chosen = self._chosen(pool)
        having = [name for name, one in chosen.items() if one._is_awaited(call)]
        if len(having) > 1:
            raise ValueError(f"pools {' and '.join(having)} both have a call {call}: name one of them with --pool")
        if not having or not chosen[having[0]].cancel(call):
            gone = "or it was told to stop before"
            raise ValueError(f"no call {call} waits or runs, {gone}; `clutch ps` lists those that run")
        say(f"pool {having[0]}: call {call} cancelled, by command", pool=having[0], call=call)
        return having[0]

    def stop(self, now: bool = False) -> dict[str, Any]:
        self._stop(now)
        return self.hello()

    def _chosen(self, name: str | None) -> dict[str, Any]:
        pools = dict(self._pools.items())
        if name is None:
            return pools
        if name not in pools:
            raise NoSuchPool(f"no pool {name!r}; allowed: {', '.join(pools)}", name=name)
        return {name: pools[name]}


def say(message: str, **fields: object) -> None:
    log.info(message, extra={"fields": fields})


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
