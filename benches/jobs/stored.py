"""Clutch's queue over a database in the folder of its trial, for orders whose store has `{folder}` in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clutch.lab.peers.jobs.ours import OurQueue


def opened(order: dict[str, Any], folder: Path) -> OurQueue:
    return OurQueue({**order, "store": order["store"].format(folder=folder)}, folder)
