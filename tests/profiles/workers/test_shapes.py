"""Which shapes this suite runs over, on this interpreter."""

from __future__ import annotations

import pytest

from clutch import Pool
from support.shapes import SHAPES, Shape, reason_to_skip


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_shape(shape: Shape) -> None:
    reason = reason_to_skip(shape)
    if reason:
        pytest.skip(reason)
    with Pool("profile_tools", **shape.options) as pool:
        pool.wait_ready(timeout=60)
        assert pool.stats()["slots"] == shape.slots
        assert pool.call("add", 1, 2) == 3
