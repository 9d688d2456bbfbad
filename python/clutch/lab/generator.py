"""The load generator, which is part of the core: connections to a server, and latencies of any number."""

from __future__ import annotations

from clutch._core import Latencies, Load

__all__ = ["Latencies", "Load"]
