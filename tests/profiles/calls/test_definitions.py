"""A function is found in the slot of its first call: what its module does on import is that call's, nobody else's."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clutch import Pool
from support.rendezvous import Rendezvous
from support.shapes import Shape

pytestmark = pytest.mark.per_profile

MODULE = """
import os
from support.rendezvous import meet

def value():
    return 1

def another():
    return 2

if os.getpid() != PID:
    meet(PORT)
"""


@pytest.fixture
def lingering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rendezvous: Rendezvous) -> Any:
    """A module whose import in a worker takes until the test lets it go."""
    text = MODULE.replace("PORT", str(rendezvous.port)).replace("PID", str(os.getpid()))
    (tmp_path / "lingering.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("lingering")
    monkeypatch.delitem(sys.modules, "lingering", raising=False)
    sys.modules["lingering"] = module  # taken out again with the test
    return module


def ready(make_pool: Callable[..., Pool], **options: Any) -> Pool:
    pool = make_pool(workers=1, **options)
    pool.wait_ready(timeout=60)
    return pool


def test_an_import_that_hangs_is_stopped_and_the_pool_serves_on(
    make_pool: Callable[..., Pool], lingering: Any, rendezvous: Rendezvous
) -> None:
    pool = ready(make_pool, grace=0.1, interrupt_grace=1.0, term_grace=0.1)
    future = pool.submit(lingering.value)
    guest = rendezvous.guest()
    assert [work["what"] for works in pool.running().values() for work in works] == ["value"]
    while "lingering.py" not in str(pool.stacks()):
        """A busy machine gives the worker no time to show them."""
    assert future.cancel()
    guest.wait_gone()
    assert pool.submit("echo", 1).result(60) == 1
    again = pool.submit(lingering.value)
    rendezvous.guest().let_go()
    assert again.result(60) == 1, "the one that was stopped is not remembered"


def test_an_import_holds_up_no_other_slot(
    make_pool: Callable[..., Pool], shape: Shape, lingering: Any, rendezvous: Rendezvous
) -> None:
    if shape.name not in ("thread", "greenlet"):
        return  # there is no other slot, or one loop for all
    pool = ready(make_pool)
    future = pool.submit(lingering.value)
    guest = rendezvous.guest()
    assert pool.submit("echo", 1).result(60) == 1
    guest.let_go()
    assert future.result(60) == 1


def test_who_waits_for_a_function_to_be_found_may_be_stopped(
    make_pool: Callable[..., Pool], shape: Shape, lingering: Any, rendezvous: Rendezvous
) -> None:
    if shape.name not in ("thread", "greenlet"):
        return
    pool = ready(make_pool, interrupt_grace=300.0)
    first = pool.submit(lingering.value)
    guest = rendezvous.guest()
    waiting = pool.submit(lingering.value)
    assert pool.submit("echo", 1).result(60) == 1  # begun behind it, in the third slot
    assert waiting.cancel()
    while pool.stats()["sent"] > 1:
        assert pool.submit("echo", 1).result(60) == 1
    second = pool.submit(lingering.value)
    guest.let_go()
    assert [first.result(60), second.result(60), pool.submit(lingering.another).result(60)] == [1, 1, 2]
    assert rendezvous.nobody_waits(), "it was imported once"
