"""Where values are along an axis, which of them are written beside it, and how."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from clutch.lab.report import Axis

PERCENTILES = (0, 50, 90, 99, 99.9, 99.99, 99.999, 99.9999)
LOG_TICKS_MAX = 9
"""Values that are all written, if there are no more."""
DECADES_FINE_MAX = 4
"""Decades between which 2 and 5 are written too."""

Scale = Literal["linear", "log", "percentile"]
Point = tuple[float, float]


def place_of(value: float, scale: Scale) -> float:
    """Where a value is along its axis. It has a place there: see `drawing.left_out`."""
    if scale == "log":
        return math.log10(value)
    return -math.log10(1 - value / 100) if scale == "percentile" else value


def domain_of(values: Sequence[float], axis: Axis, has_zero: bool) -> Point:
    """The ends of an axis, as places."""
    low, high = min(values), max(values)
    if has_zero and axis.scale != "log":
        low, high = min(0.0, low), max(0.0, high)
    if low == high:
        room = abs(low) / 2 or 1.0
        return (low - 0.3, high + 0.3) if axis.scale != "linear" else (low - room, high + room)
    room = (high - low) * 0.04 if axis.scale == "log" else 0
    return low - room, high + room


def ticks_of(values: Sequence[float], axis: Axis, domain: Point) -> list[float] | None:
    """Values beside which a figure is written; None: as they come on a linear axis."""
    if axis.scale == "linear":
        return None
    if axis.scale == "percentile":
        found = [float(percent) for percent in PERCENTILES]
    elif len(set(values)) <= LOG_TICKS_MAX:
        found = sorted(set(values))
    else:
        first, last = math.floor(domain[0]), math.ceil(domain[1])
        factors = (1, 2, 5) if last - first <= DECADES_FINE_MAX else (1,)
        found = [factor * 10.0**power for power in range(first, last + 1) for factor in factors]
    within = [one for one in found if domain[0] - 1e-9 <= place_of(one, axis.scale) <= domain[1] + 1e-9]
    return within or sorted(set(values))[:LOG_TICKS_MAX]


def exact(value: float) -> str:
    """Seven digits, which is more than anything here is measured to."""
    return _digits(value, 7)


def short(value: float) -> str:
    return _digits(value, 3)


def _digits(value: float, count: int) -> str:
    if not value or not math.isfinite(value):
        return "0" if not value else str(value)
    decimals = min(max(count - 1 - math.floor(math.log10(abs(value))), 0), 15)
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text
