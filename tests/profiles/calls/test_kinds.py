"""The handlers of work are found by kind."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from clutch import Pool


def test_a_function_of_an_unknown_kind_is_refused_by_its_kind(make_pool: Callable[..., Pool]) -> None:
    with pytest.raises(ValueError, match="no handler for functions of the kind 'odd'"):
        make_pool("odd_kind").call("odd")
