"""Tasks of a Celery app that are `async def`, or return coroutines."""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

from celery import Celery
from celery._state import _task_stack
from kombu.pools import Connections, ProducerPool

from clutch.celery.limits import SOFT, within_soft_limit
from clutch.celery.steps import Step, here, is_gevent_here, on_loop, run_in_step


def bridge(task: Any) -> None:
    """Lets a task be `async def`: Celery's tracer calls it, and waits for what it returns. `autoretry_for` has put a
    function of its own before that of the app, and is to see what the coroutine raises."""
    name = "_orig_run" if hasattr(task, "_orig_run") else "run"
    setattr(task, name, bridged(task, getattr(task, name)))


def bridged(task: Any, run: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which waits for the coroutine it returns, be it `async def` or a decorated one."""
    inner = wrapped_for_pydantic(run)
    if inner is not None:  # Celery's wrapper is to see the model that the coroutine returns
        inner.cell_contents = bridged(task, inner.cell_contents)
        return run
    task.is_coroutine = inspect.iscoroutinefunction(run)

    @functools.wraps(run)
    def waited(*args: Any, **kwargs: Any) -> Any:
        returned = run(*args, **kwargs)
        return wait_for(returned, task) if inspect.iscoroutine(returned) else returned

    return waited


def wrapped_for_pydantic(run: Any) -> types.CellType | None:
    """Where Celery's wrapper of a task with `pydantic=True` has the function; None: this is another function."""
    function = getattr(run, "__func__", run)
    code = getattr(function, "__code__", None)
    if code is None or not code.co_qualname.startswith("pydantic_wrapper."):
        return None
    found: types.CellType = function.__closure__[code.co_freevars.index("task_fun")]
    return found


LOOPS = threading.local()
GREENLETS = "clutch._worker.profiles.greenlet"
"""The profile whose slots are greenlets: where they are, it is loaded."""


def part_producers(app: Celery) -> None:
    """Gives tasks that are coroutines connections of their own to send tasks by: those of one thread's greenlets cannot
    be waited for in another thread, where their loop is."""
    from gevent import monkey

    thread_of = monkey.get_original("_thread", "get_ident")
    main, kind = thread_of(), type(app.amqp)
    pools: list[ProducerPool] = []

    class Parted(kind):  # type: ignore[misc, valid-type]
        @property
        def producer_pool(self) -> Any:
            if thread_of() == main:
                return super().producer_pool
            if not pools:
                limit = app.pool.limit
                connections = Connections(limit)[app.connection_for_write()]
                pools.append(ProducerPool(connections, limit=limit))
            return pools[0]

    app.amqp.__class__ = Parted


def run_elsewhere(coroutine: Any, task: Any, request: Any) -> Any:
    """In a step on a loop of another thread, where the task and its request are not known."""
    _task_stack.push(task)
    task.request_stack.push(request)
    try:
        return run_in_step(coroutine)
    finally:
        task.request_stack.pop()
        _task_stack.pop()


def wait_for(coroutine: Any, task: Any) -> Any:
    """Runs a coroutine of a task: on the loop that this is a step on, or else on one that the thread keeps."""
    soft = SOFT.get()
    if soft is not None:
        soft.watch.close()  # one limit is enough, and that of the loop ends the coroutine where it waits
    limited = within_soft_limit(coroutine, soft)
    if isinstance(here(), Step):
        return run_in_step(limited)
    if is_gevent_here():
        if not hasattr(LOOPS, "native"):
            LOOPS.native = sys.modules[GREENLETS].NativeLoop()
        return LOOPS.native.run(on_loop(run_elsewhere, limited, task, task.request_stack.top))
    runner = getattr(LOOPS, "runner", None)
    if runner is None:
        runner = LOOPS.runner = asyncio.Runner()
    return runner.run(limited)
