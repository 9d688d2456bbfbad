"""Which exceptions a tool tries again: how they are given, what is refused, and which of them counts."""

from __future__ import annotations

import configparser
import sys
from types import ModuleType
from typing import Any

import pytest

from clutch import tool
from clutch.tools import ToolOptions


@pytest.mark.parametrize(
    ("options", "error", "gives_up"),
    [
        ({}, ValueError(), False),
        ({"give_up_on": (ValueError,)}, UnicodeError("utf-8"), True),
        ({"give_up_on": ("ValueError",)}, UnicodeError("utf-8"), True),
        ({"give_up_on": (ValueError,)}, KeyError(), False),
        ({"retry_on": (OSError,)}, ConnectionError(), False),
        ({"retry_on": (OSError,)}, ValueError(), True),
        ({"retry_on": ()}, ValueError(), True),
        ({"retry_on": (OSError,), "give_up_on": (TimeoutError,)}, TimeoutError(), True),
        ({"retry_on": ["configparser.Error"]}, configparser.NoSectionError("x"), False),
        ({"retry_on": ["configparser.Error"]}, ValueError(), True),
        ({"give_up_on": ["no_such_package.Error"]}, ValueError(), False),
        ({"give_up_on": ["configparser.NoSuchError"]}, configparser.Error("x"), False),
    ],
)
def test_the_class_of_an_error_decides(options: Any, error: Exception, gives_up: bool) -> None:
    assert ToolOptions(**options).gives_up(error) == gives_up


def test_a_name_may_be_one_under_which_a_package_shows_a_class(monkeypatch: pytest.MonkeyPatch) -> None:
    package = ModuleType("shown")
    package.__dict__["Failed"] = configparser.Error
    options = ToolOptions(give_up_on=("shown.Failed",))
    assert not options.gives_up(configparser.Error("x")), "it is not imported, so nobody has raised it"
    monkeypatch.setitem(sys.modules, "shown", package)
    assert options.gives_up(configparser.Error("x"))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"retry_on": ValueError}, r"retry_on <class 'ValueError'>: allowed is a tuple of exceptions or their names"),
        ({"give_up_on": "ValueError"}, "give_up_on 'ValueError': allowed is a tuple"),
        ({"give_up_on": (KeyboardInterrupt,)}, "KeyboardInterrupt: allowed are Exception and its subclasses"),
        ({"give_up_on": (7,)}, "give_up_on 7: allowed are exceptions, and names such as 'requests.HTTPError'"),
        ({"give_up_on": ("HTTPError",)}, "give its module, too: 'package.HTTPError'"),
        ({"retry_on": ("print",)}, "no exception of Python itself"),
        ({"retry_on": ("a..b",)}, "allowed are exceptions, and names"),
        (
            {"retry_on": (ConnectionError,), "give_up_on": ("OSError",)},
            "retry_on ConnectionError: give_up_on has it or",
        ),
        ({"attempt_deadline": "soon"}, "attempt_deadline 'soon': allowed are seconds"),
        ({"attempt_deadline": 0}, "attempt_deadline 0: no attempt could begin"),
    ],
)
def test_what_is_wrong_is_refused_by_the_decorator(options: Any, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        tool(**options)


def test_a_short_deadline_is_one() -> None:
    assert ToolOptions(attempt_deadline=0.0001).attempt_ms == 1
