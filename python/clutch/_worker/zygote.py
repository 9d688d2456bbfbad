"""The zygote: loads the target once, then forks a worker whenever it is told to.

Owns the loaded image. Promises one Python thread, a frozen garbage collector, and that whatever goes wrong while
loading is told with its traceback. The waiting, reaping and killing is native (`_core.ZygoteControl`).
"""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import os
import resource
import sys
import traceback
import warnings
from typing import Any

from clutch import _core
from clutch._worker import breakpoints, copies, interrupt, spawn
from clutch._worker.afresh import Plan, StartedWith
from clutch._worker.image import Image, not_imported
from clutch._worker.main import import_early, run_forked
from clutch._worker.script import ScriptError
from clutch._worker.surroundings import ZYGOTE_OF

MAX_REASON_CHARACTERS = 20_000


def main() -> None:
    """Entry point: `python -P -c "from clutch._worker.zygote import main; main()"`, with the control socket as fd 0."""
    os.environ.pop(ZYGOTE_OF, None)
    plan, surroundings = Plan.taken(), StartedWith()
    control = _core.ZygoteControl(socket := _take_control_socket())
    interrupt.heed_dispatcher_alone()
    interrupt.show_stacks_of_load()
    try:
        image = load(control, plan)
        if image.plan is not None and image.starts_afresh:
            image.plan.carry_out(surroundings, socket)
        control.disarm()
        control.say("up", json.dumps(image.report()))
    except ConnectionError:  # the pool was closed meanwhile
        os._exit(1)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    serve(control, image)


def load(control: _core.ZygoteControl, plan: Plan | None) -> Image:
    """Load the image, ready to fork. If it cannot be loaded, report why and exit. `plan`: of the program before."""
    if plan is None:
        control.say("hello", json.dumps(hello()))
    launch = json.loads(control.launch()) if plan is None else plan.launch
    breakpoints.install(launch["launch"].get("debugger"))
    try:
        image = Image.load(launch, plan)
        if launch["start"] == "fork" and not image.starts_afresh:
            import_early(image)
    except BaseException as error:
        copies.leave_if_copy(error)
        control.say("failed", json.dumps({"reason": load_failure(launch, error)}))
        sys.stderr.flush()
        os._exit(1)
    copies.leave_if_copy()
    _core.set_title(f"clutch: zygote {launch['pool']}")
    interrupt.prepare()
    gc.collect()
    gc.freeze()
    return image


def _take_control_socket() -> int:
    """Moves the control socket away from standard input, which user code may read."""
    control = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return control


def hello() -> dict[str, object]:
    version = sys.version_info
    return {
        "clutch": _core.__version__,
        "wire": _core.WIRE_VERSION,
        "python": f"{version.major}.{version.minor}.{version.micro}",
        "tag": sys.implementation.cache_tag + getattr(sys, "abiflags", ""),
        "pid": os.getpid(),
    }


def load_failure(launch: dict[str, Any], error: BaseException) -> str:
    """The reason that callers see: what could not be loaded, and the traceback from the user's own first line on."""
    target = launch["launch"].get("target")
    subject = "the script" if target is None else f"target {target!r}"
    what = str(error) if isinstance(error, ScriptError) else not_imported(subject, error)
    return f"pool {launch['pool']!r}: {what}"[:MAX_REASON_CHARACTERS]


def serve(control: _core.ZygoteControl, image: Image) -> None:
    """Fork workers on demand. Never returns: the native loop exits the process when the dispatcher is gone."""
    spawning = image.launch["start"] == "spawn"
    while True:
        order = control.next_order()
        try:
            pid = spawn.start(control, order, image) if spawning else fork(control, order, image)
        except OSError as error:
            control.fork_failed(order, f"cannot fork a worker: {error}{advice(error)}")
        else:
            control.forked(order, pid)


def advice(error: OSError) -> str:
    """The limits that may have been reached, if the error does not name one."""
    if error.errno != errno.EAGAIN:
        return ""
    limits = f"ulimit -u is {soft_limit()}, pids.max of the cgroup {pids_max()}"
    return f"; the limit of processes and threads is reached: {limits}"


def soft_limit() -> str:
    soft = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    return "unlimited" if soft == resource.RLIM_INFINITY else str(soft)


def pids_max() -> str:
    """The smallest `pids.max` of this process's cgroup and its ancestors."""
    from pathlib import Path  # which workers would have to carry along

    found = []
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            root = Path("/sys/fs/cgroup", "pids" if "pids" in controllers.split(",") else "")
            folder = root / path.lstrip("/")
            for place in (folder, *folder.parents):
                with contextlib.suppress(OSError, ValueError):
                    found.append(int((place / "pids.max").read_text()))
    return str(min(found)) if found else "unlimited"


def fork(control: _core.ZygoteControl, order: _core.ForkOrder, image: Image) -> int:
    with warnings.catch_warnings():
        # Threads of the image were named when it was loaded.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        return pid
    try:
        run_forked(control, order, image)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)
