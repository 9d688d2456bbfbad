"""Code that is not `async def` and runs coroutines, on an event loop, and whether slots are greenlets or threads."""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable
from typing import Any

try:
    from greenlet import getcurrent, greenlet
except ImportError:  # then tasks that are coroutines have threads
    getcurrent, greenlet = threading.current_thread, None

HAS_GREENLETS = greenlet is not None


class Step(greenlet or object):  # type: ignore[misc]
    """Code that is not `async def` and runs coroutines, in a task of an event loop. Its coroutines run in it, so that
    what Celery keeps by greenlet, such as the request of a task, is theirs; what they wait for, the task waits for."""


class Waited:
    """What a coroutine has given to the loop to wait for, as it is."""

    def __init__(self, waited: Any) -> None:
        self._waited = waited

    def __await__(self) -> Any:
        return (yield self._waited)


async def on_loop(function: Callable[..., Any], *args: Any) -> Any:
    """Calls a function that runs coroutines (`wait_for`) here, while others run on the loop."""
    step = Step(function)
    step.gr_context = contextvars.copy_context()
    made = step.switch(*args)
    while not step.dead:
        try:
            value = await Waited(made)
        except BaseException as error:
            made = step.throw(error)
        else:
            made = step.switch(value)
    return made


def run_in_step(coroutine: Any) -> Any:
    loop = here().parent
    try:
        waited = coroutine.send(None)
        while True:
            try:
                value = loop.switch(waited)
            except BaseException as error:
                waited = coroutine.throw(error)
            else:
                waited = coroutine.send(value)
    except StopIteration as end:
        return end.value


def here() -> Any:
    """What this code runs in: a step, another greenlet, or a thread."""
    return getcurrent()


def is_gevent_here() -> bool:
    """Whether slots are greenlets: then threads are, too."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and monkey.is_module_patched("threading")
