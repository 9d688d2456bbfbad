"""What is started ends with who started it, also when that is killed and cannot stop anything any more."""

from __future__ import annotations

import ctypes
import signal

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1  # prctl(2)


def die_with_parent() -> None:
    """A `preexec_fn`: the kernel sends SIGTERM when the parent is gone."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
