"""A worker's life: from the fork, through its start hooks, the loop of its profile, to its end.

Owns the order of these steps. Promises that a start that fails is told with its reason, and that the process ends by
`os._exit`, so that nothing of the zygote's runs at its end.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import importlib
import json
import os
import pickle
import random
import resource
import sys
import threading
import types
import weakref
from typing import Any

from clutch import _core
from clutch._pickle import pass_descriptors
from clutch._worker import breakpoints, copies, failure, interrupt, script
from clutch._worker.handlers.call import Definition, Tool
from clutch._worker.image import Image
from clutch._worker.leftovers import seed_anew
from clutch._worker.ports import SharedPorts, parent_of
from clutch._worker.profiles.base import Profile
from clutch._worker.script import ScriptError

FILES = {"async": "aio"}
"""Files of profiles whose names no module can have; the others are named like their file."""


def run_forked(control: _core.ZygoteControl, order: _core.ForkOrder, image: Image) -> None:
    """In the child of a fork: becomes a worker and never returns."""
    copies.begin()
    dispatcher = control.in_child()
    link, board, alarm, out, err = order.take()
    for fd, number in ((out, 1), (err, 2)):
        os.dup2(fd, number)
        os.close(fd)
    restore_descriptor_limit(image.launch.get("descriptors"))
    reseed()
    seed_anew(*image.seeded)
    forget_exits()
    if image.shape["profile"] == "greenlet":
        from gevent import reinit

        reinit()
    run(image, json.loads(order.info), (link, board, alarm, dispatcher))


def forget_exits() -> None:
    """What was registered for the end of the process before the fork is about the image of all workers, as a temporary
    folder is."""
    atexit._clear()
    for known in weakref.finalize._registry.values():  # type: ignore[attr-defined]
        known.atexit = False
    weakref.finalize._registered_with_atexit = False  # type: ignore[attr-defined]


def restore_descriptor_limit(soft: int | None) -> None:
    """Give user code the descriptor limit that the dispatcher was started with; it raised its own and the zygote's."""
    if soft is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def run(image: Image, order: dict[str, Any], descriptors: tuple[int, int, int, int]) -> None:
    """Start, run and end one worker. `descriptors`: link, board, alarm, a pidfd of the dispatcher."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the target's own, which may be anything
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    resolver = Resolver(image)
    limits = image.launch["payload_bytes_max"], image.launch["memory_floor"]
    # Elsewhere a thread runs many requests at a time.
    tells_cpu = image.options.get("tells_cpu", False) and image.shape["profile"] in ("process", "thread")
    worker = _core.Worker(descriptors, resolver, *limits, tells_cpu)
    link = worker.link
    code, failed = 1, "could not start"
    name = f"{image.launch['pool']}/{order['nr']}"
    _core.set_title(f"clutch: worker {name}")
    if "multiprocessing.process" in sys.modules:  # log records have it
        sys.modules["multiprocessing.process"].current_process().name = name

    def ready() -> None:
        nonlocal failed
        failed = "broke off"
        starting.close()
        link.ready(json.dumps({**order, "pid": os.getpid()}))

    starting = contextlib.ExitStack()
    try:
        starting.enter_context(SharedPorts(parent_of(os.getppid())))
        signals = interrupt.Signals(worker.slots)
        breakpoints.serve(link)
        apply_settings(image, early=not (image.imported or image.options.get("initializer")))
        start(image, worker)
        copies.leave_if_copy()
        if image.told_of_values is not None and order["nr"] == 0:
            from clutch._worker import values

            values.tell_differing(image.options["values"], image.told_of_values)
        if image.options.get("log_format") == "json":
            # Here, since others need nothing of it.
            from clutch._worker.json_lines import write_unhandled

            write_unhandled()
        if image.told_of_logs is not None:
            from clutch._worker import unheard

            unheard.watch(image.options["logging"], image.told_of_logs)
        profile = load_profile(image)
        signals.listen(profile.is_held_up, profile.was_lost)
        profile.run(worker, ready)
        image.run_hooks("stop")
        finish()
        code = 0
    except BaseException as error:
        copies.leave_if_copy(error)
        reason = reason_of(image, failed, error)  # with its traceback
        if image.told_of_start is not None and not _core.test_and_set(image.told_of_start):
            print(f"warning: {reason}", file=sys.stderr, flush=True)
        link.failed(json.dumps({"reason": reason}))
    finally:
        copies.flush()
        os._exit(code)


def finish() -> None:
    """What the interpreter does at its end: wait for threads that are not daemons, and run what this worker has
    registered with `atexit`. The dispatcher waits for that as long as for running work."""
    copies.leave_if_copy()
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()


def start(image: Image, worker: _core.Worker) -> None:
    """Run the initializer, as concurrent.futures does; then create the class target and run the hooks."""
    if image.script is not None:
        image.script.when_loaded = lambda: apply_settings(image)
    if image.options.get("initializer"):
        function, given = pickle.loads(base64.b64decode(image.options["initializer"]))
        initializer, arguments = pickle.loads(function), read_arguments(given)
        by_value = sys.modules.get("clutch._pickle.by_value")
        if by_value is None:
            initializer(*arguments)
        else:
            by_value.initialize(initializer, arguments)
    # The program's come over what the imports have set, and the initializer's over those.
    image.start(worker, (lambda: None) if image.options.get("initializer") else lambda: apply_settings(image))


def apply_settings(image: Image, early: bool = False) -> None:
    """Set what the program has set for its whole process. `early`: imports follow, which warn of more than the program
    has seen."""
    if image.options.get("settings") is not None:
        from clutch._worker import settings

        settings.apply(image.options["settings"], early)


def read_arguments(given: Any) -> Any:
    """`given`: their pickle, or where they lie in the program's memory."""
    return pickle.loads(given) if isinstance(given, bytes) else given.read()


def reason_of(image: Image, failed: str, error: BaseException) -> str:
    text = failure.traceback_of(error)
    error = script.explain(error)
    if isinstance(error, ScriptError):
        what = str(error)
    elif isinstance(error, failure.SaysItAll):
        what = said_by(error)
    else:
        what = f"{error!r}\n{text}"
    return f"a worker of pool {image.launch['pool']!r} {failed}: {what.rstrip()}"


def said_by(error: failure.SaysItAll) -> str:
    """Returns the message, and the user's own exception once. A message of many lines is a traceback: its end comes
    first, since a log may have room for one line.
    """
    text = failure.message_of(error).strip()
    last = text.rpartition("\n")[2]
    parts = [text] if last == text else [last, text]
    if error.__cause__ is not None:
        parts.append(failure.traceback_of(error.__cause__))
    return "\n".join(parts)


def load_profile(image: Image) -> Profile:
    """The profile of the pool."""
    return profile_module(image).make(
        {
            **image.shape,
            "served": image.app,
            "loop": image.options.get("loop", "auto"),
            "tasks_given": image.options.get("tasks_given", False),
            "collects_at": image.collects_at,
        }
    )


def profile_module(image: Image) -> types.ModuleType:
    """The module of the profile: `async` also for processes and threads if the target needs event loops."""
    profile = image.shape["profile"]
    if image.needs_loop and profile in ("process", "thread"):
        profile = "async"
    return importlib.import_module(f"clutch._worker.profiles.{FILES.get(profile, profile)}")


def import_early(image: Image) -> None:
    """Import before the fork, so that workers share the memory: the profile with its event loop, asyncio for tools that
    are coroutines, and the part of anyio that ASGI frameworks import with their first request."""
    profile_module(image)
    pass_descriptors()
    if any(tool.is_async for tool in image.known.values()):
        importlib.import_module("asyncio")
    if "terminal" in (image.options.get("debugger") or {}):
        importlib.import_module("clutch._worker.debugger")
    if image.needs_loop and "anyio" in sys.modules:
        with contextlib.suppress(ImportError):
            importlib.import_module("anyio._backends._asyncio")


class Resolver:
    """Resolves the definition of a function on the link to its Tool, or to a `Definition` that unpickles it later."""

    def __init__(self, image: Image) -> None:
        self.image = image

    def __call__(self, codec: int, body: bytes) -> Tool | Definition:
        """Runs no user code: the reader of the link waits for this."""
        if codec != _core.CODEC_NAME:
            return Definition(body)
        try:
            return self.image.tool(body.decode())
        except BaseException as error:
            return Tool.broken(error, by_name=True)


def reseed() -> None:
    """Seed `random`, numpy and torch anew: workers of one image must not draw the same numbers."""
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None and "numpy.random" in sys.modules:
        numpy.random.seed()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(int.from_bytes(os.urandom(7), "little"))
