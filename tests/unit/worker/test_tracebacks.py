"""Exceptions that nobody catches: what they say is told also where the hooks of workers fail."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable

import pytest

from clutch._worker import tracebacks

FRAMES_LEFT = range(9, 60)
"""Fewer than these not even Python's own hook does with."""


class Careless:
    def __del__(self) -> None:
        raise ValueError("lost")


def uncaught(error: ValueError) -> None:
    tracebacks.uncaught(ValueError, error, error.__traceback__)


def uncaught_in_thread(error: ValueError) -> None:
    tracebacks.uncaught_in_thread(
        threading.ExceptHookArgs((ValueError, error, error.__traceback__, threading.current_thread()))
    )


def unraisable(error: ValueError) -> None:
    """An error of Python's own making: nobody else may make what the hook is given."""
    careless = Careless()
    del careless


def frames_left() -> int:
    try:
        return 1 + frames_left()
    except RecursionError:
        return 0


@pytest.fixture
def hooked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "unraisablehook", tracebacks.unraisable)


@pytest.mark.usefixtures("hooked")
@pytest.mark.parametrize("leave", [uncaught, uncaught_in_thread, unraisable])
def test_an_error_is_told_though_its_traceback_cannot_be_made(
    leave: Callable[[ValueError], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise RecursionError

    monkeypatch.setattr(traceback, "format_exception", fail)
    leave(ValueError("lost"))
    assert "ValueError: lost\n" in capsys.readouterr().err


@pytest.mark.usefixtures("hooked")
def test_an_unraisable_error_is_told_near_the_limit_of_recursion(capsys: pytest.CaptureFixture[str]) -> None:
    def descend(frames: int) -> None:
        if frames:
            descend(frames - 1)
        else:
            unraisable(ValueError())

    room = frames_left()
    missing = []
    for left in FRAMES_LEFT:
        descend(room - left)
        if "ValueError: lost\n" not in capsys.readouterr().err:
            missing.append(left)
    assert missing == []
