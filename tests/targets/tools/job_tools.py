"""Tools that run as jobs: they say what they know of themselves, and end in every way."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
from pathlib import Path
from typing import Any

import clutch
from clutch import tool
from support.rendezvous import meet, meet_async


@tool
def double(n: int) -> int:
    return 2 * n


@tool
def many(first: int, *others: int, last: str = "end") -> list[Any]:
    return [first, *others, last]


@tool
def append(path: str, text: str = ".") -> None:
    """One write, so that runs are counted whatever happens."""
    with open(path, "ab", buffering=0) as file:
        file.write(text.encode())


@tool
def append_tick(path: str) -> None:
    """The tick of a periodic job."""
    job = clutch.current_job()
    assert job is not None
    append(path, f"{job.meta['tick']}\n")


@tool
def about() -> dict[str, Any]:
    job = clutch.current_job()
    assert job is not None
    return {"id": job.id, "queue": job.queue, "attempt": job.attempt, "tags": list(job.tags), "meta": dict(job.meta)}


@tool
async def about_later() -> dict[str, Any]:
    import asyncio

    await asyncio.sleep(0)
    return about()


@tool(result=60)
def results() -> list[Any]:
    job = clutch.current_job()
    assert job is not None
    return list(job.results)


@tool
def text_of(size: int) -> str:
    return "x" * size


@tool(result=60)
def sizes() -> list[int]:
    return [len(text) for text in results()]


@tool(retry=2, backoff=0)
def fail(message: str) -> None:
    raise ValueError(message)


@tool(backoff=0)
def fail_until(attempt: int) -> Any:
    job = clutch.current_job()
    assert job is not None
    if job.attempt < attempt:
        job.checkpoint({"seen": job.attempt})
        raise RuntimeError("not yet")
    return job.last_checkpoint


@tool
def snooze_once(path: str) -> object:
    if not Path(path).exists():
        Path(path).touch()
        return clutch.Snooze("1ms")
    job = clutch.current_job()
    return job is not None and job.attempt


@tool
def cancel_itself() -> object:
    return clutch.Cancel("the order is gone")


@tool
def cancel_for_file() -> object:
    return clutch.Cancel("\udcff is gone" + "!" * 1_000_000)


@tool(retry=1)
def ask_for_retry() -> object:
    return clutch.Retry(0, "busy")


@tool(retry=1)
def raise_directive(name: str, *arguments: float | str) -> None:
    raise getattr(clutch, name)(*arguments)


@tool(retry=1)
async def raise_directive_soon(name: str, *arguments: float | str) -> None:
    await asyncio.sleep(0)
    raise getattr(clutch, name)(*arguments)


@tool(retry=1, backoff=0, give_up_on=("configparser.Error", LookupError))
def raise_of(module: str, name: str) -> None:
    raise getattr(importlib.import_module(module), name)("no")


@tool(retry=1, backoff=0, retry_on=(OSError, "configparser.Error"), give_up_on=(TimeoutError,))
async def raise_of_soon(module: str, name: str) -> None:
    await asyncio.sleep(0)
    raise_of(module, name)


@tool(retry=1, backoff=0, attempt_deadline="1s")
def wait_too_long(port: int) -> str:
    return meet(port, "late")


@tool(retry=1, backoff=0, attempt_deadline="1s")
async def wait_too_long_soon(port: int) -> str:
    return await meet_async(port, "late")


@tool
def odd() -> object:
    return object()


@tool
def kill_worker() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@tool
def kill_worker_once(path: str) -> str:
    if not Path(path).exists():
        Path(path).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


@tool(serial=True)
def wait_in_turn(port: int) -> str:
    return meet(port)


@tool
def wait_at(port: int) -> str:
    job = clutch.current_job()
    assert job is not None
    job.progress({"at": "gate"})
    return meet(port, job.id)
