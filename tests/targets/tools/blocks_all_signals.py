"""A target that blocks all signals from its import on."""

from __future__ import annotations

import signal

from profile_tools import pid, spin  # noqa: F401 (the tools of this target)

signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
