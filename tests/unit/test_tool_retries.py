"""Which exceptions a tool tries again: how they are given, what is refused, and which of them counts."""

from __future__ import annotations

import asyncio  # noqa: F401, one of the names is in it
import configparser
import email  # noqa: F401
import sys
from types import ModuleType
from typing import Any

import pytest

from clutch import tool
from clutch.tools import ToolOptions, retry_problems


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
    ],
)
def test_the_class_of_an_error_decides(options: Any, error: Exception, gives_up: bool) -> None:
    assert ToolOptions(**options).gives_up(error) == gives_up


def test_a_name_may_be_one_under_which_a_package_shows_a_class(monkeypatch: pytest.MonkeyPatch) -> None:
    package = ModuleType("shown")
    package.__dict__["Failed"] = configparser.Error
    options = ToolOptions(give_up_on=("shown.Failed",))
    with pytest.warns(RuntimeWarning, match="there is no module 'shown'"):
        assert not options.gives_up(configparser.Error("x")), "it is not imported, so nobody has raised it"
    monkeypatch.setitem(sys.modules, "shown", package)
    assert options.gives_up(configparser.Error("x"))


def test_why_there_is_no_other_attempt_is_said() -> None:
    options = ToolOptions(retry_on=(OSError,), give_up_on=(TimeoutError,))
    assert options.why_given_up(TimeoutError()) == "its tool gives up on TimeoutError (give_up_on)"
    assert options.why_given_up(ValueError()) == "its tool is not retried on ValueError (retry_on)"
    assert options.why_given_up(ConnectionError()) is None


@pytest.mark.parametrize(
    ("name", "problem", "is_certain"),
    [
        ("configparser.NoSectionErorr", "has no 'NoSectionErorr'; did you mean configparser.NoSectionError?", True),
        ("configparser.RawConfigParser.Error", "'configparser' is imported, and has no 'Error'", True),
        ("configparser.RawConfigParser", "is no exception; allowed are Exception and its subclasses", True),
        ("asyncio.CancelledError", "is no exception; allowed are Exception", True),
        ("email.no_such.Error", "'email' is imported, and has no 'no_such'", True),
        ("no_such_package.Error", "there is no module 'no_such_package': is it installed", False),
    ],
)
def test_names_that_mean_nothing_are_told(name: str, problem: str, is_certain: bool) -> None:
    options = ToolOptions(give_up_on=(name,))
    ((said, is_told),) = retry_problems(options)
    assert said.startswith(f"give_up_on {name!r}: ") and problem in said and is_told == is_certain
    with pytest.warns(RuntimeWarning, match="give_up_on '"):
        assert not options.gives_up(configparser.Error("x"))


@pytest.mark.parametrize("name", ["this.Error", "email.no_module_yet.Error", "__main__.Failed", "configparser.Error"])
def test_nothing_is_imported_to_look_for_a_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A module of the package that is there, and not imported.
    monkeypatch.setattr("importlib.util.find_spec", lambda wanted: wanted)
    assert list(retry_problems(ToolOptions(retry_on=(name,)))) == []
    assert "this" not in sys.modules


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
