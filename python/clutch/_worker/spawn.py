"""`start = "spawn"`: a worker as a fresh interpreter, started by the zygote, so that nothing is shared by fork.

The zygote stays its parent: it reaps, reports and ends it like any other worker.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from clutch import _core
from clutch._pickle import pass_descriptors
from clutch._worker import breakpoints, copies, interrupt
from clutch._worker.image import Image
from clutch._worker.leftovers import PACKAGE

ENTRY = "import sys; sys.path.append(sys.argv.pop()); from clutch._worker.spawn import main; main()"
# Where the new process finds what it was given.
LINK, BOARD, ALARM, DISPATCHER, LAUNCH = 3, 4, 5, 6, 7


def start(control: _core.ZygoteControl, order: _core.ForkOrder, image: Image) -> int:
    """Starts one worker; returns its pid."""
    link, board, alarm, out, err = given = order.take()
    dispatcher = control.dispatcher_fd()
    text = json.dumps({"launch": image.launch, "order": json.loads(order.info)})
    launch = os.memfd_create("clutch-launch")
    with open(launch, "w", encoding="utf-8", closefd=False) as file:
        file.write(text)
    os.lseek(launch, 0, os.SEEK_SET)
    wanted = {1: out, 2: err, LINK: link, BOARD: board, ALARM: alarm, DISPATCHER: dispatcher, LAUNCH: launch}
    # Through numbers above all that are wanted, so that none is overwritten before it is copied.
    high = {number: os.dup2(fd, 100 + number) for number, fd in wanted.items()}
    actions: list[Any] = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in high.items()]
    actions += [(os.POSIX_SPAWN_CLOSE, fd) for fd in high.values()]
    try:
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-P", "-c", ENTRY, os.path.dirname(PACKAGE)],
            os.environ,
            file_actions=actions,
            setpgroup=0,
            setsigmask=[],
        )
    finally:
        for fd in (*given, *high.values(), launch):
            os.close(fd)


def main() -> None:
    """Entry point of a spawned worker."""
    from clutch._worker.main import restore_descriptor_limit, run

    with os.fdopen(LAUNCH) as file:
        given = json.load(file)
    _core.keep_from_copies([LINK, ALARM, DISPATCHER])
    interrupt.heed_dispatcher_alone()
    restore_descriptor_limit(given["launch"].get("descriptors"))
    breakpoints.install(given["launch"]["launch"].get("debugger"))
    image = Image.load(given["launch"])
    copies.leave_if_copy()
    interrupt.prepare()
    pass_descriptors()
    run(image, given["order"], (LINK, BOARD, ALARM, DISPATCHER))
