"""`clutch run` as PID 1 of a container: what a first process owes to all others.

It stays behind as a small process that reaps orphans and passes signals on; the dispatcher is its child. So the
dispatcher's own children, which it waits for by itself, are never reaped by mistake, and signals mean to it what they
always mean.
"""

from __future__ import annotations

import os
import signal

PASSED_ON = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGTTIN,
    signal.SIGTTOU,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
)
SI_KERNEL = 0x80
"""`si_code` of a signal from a terminal: it went to the whole group, and the dispatcher has its own."""


def stay_first() -> None:
    """Returns at once where this is not PID 1, else in the child; the first process ends with the child's code."""
    if os.getpid() != 1:
        return
    heard = {*PASSED_ON, signal.SIGCHLD}
    # Blocked, they wait; unblocked and unhandled, the kernel drops what PID 1 is sent.
    signal.pthread_sigmask(signal.SIG_BLOCK, heard)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, heard)
        return
    os._exit(_attend(child, heard))


def _attend(child: int, heard: set[signal.Signals]) -> int:
    while True:
        told = signal.sigwaitinfo(heard)
        if told.si_signo == signal.SIGCHLD:
            status = _reap(child)
            if status is not None:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
        elif told.si_code != SI_KERNEL:
            os.kill(child, told.si_signo)


def _reap(child: int) -> int | None:
    """Takes leave of all that have ended. The child's status, when it was among them."""
    status = None
    while True:
        try:
            pid, ended = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == 0:
            return status
        if pid == child:
            status = ended
