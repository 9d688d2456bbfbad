"""What is a tool, and what only looks like one."""

from __future__ import annotations

import functools
import types
from typing import Any
from unittest import mock

import pytest

from clutch import on_start, tool
from clutch._worker.image import Image, LoadError
from clutch.tools import ToolOptions, options_of


@tool(serial=True)
def alone() -> None:
    """Is one."""


class Callable:
    @tool(main_thread=True)
    def __call__(self) -> None:
        """Is one, too."""


class AnswersAll:
    def __getattr__(self, name: str) -> Any:
        return name

    def __call__(self) -> None:
        """Is none."""

    __hash__ = None  # type: ignore[assignment]


class Raises:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    @property
    def __class__(self) -> Any:
        raise RuntimeError("__class__")


class RaisesByMeta(type):
    def __getattribute__(cls, name: str) -> Any:
        if name == "__call__":
            raise RuntimeError(name)
        return super().__getattribute__(name)


class Unreadable(metaclass=RaisesByMeta):
    """What its class says of a call is an error."""


def of_itself() -> Any:
    partial = functools.partial(alone)
    partial.__setstate__((partial, (), {}, {}))  # type: ignore[attr-defined]
    return partial


@pytest.mark.parametrize("partials", range(3))
def test_a_partial_of_a_tool_is_one(partials: int) -> None:
    function: Any = alone
    for _ in range(partials):
        function = functools.partial(function)
    assert options_of(function) == ToolOptions(serial=True)
    assert options_of(functools.partial(Callable())) == ToolOptions(main_thread=True)


@pytest.mark.parametrize(
    "make", [AnswersAll, Raises, Unreadable, mock.MagicMock, lambda: mock.call, lambda: mock.sentinel, of_itself]
)
def test_what_is_none(make: Any) -> None:
    assert options_of(make()) is None


def test_a_module_with_odd_objects_has_its_tools() -> None:
    module = types.ModuleType("odd")
    start = on_start(lambda: None)
    vars(module).update(
        alone=alone, start=start, call=mock.call, sentinel=mock.sentinel, all=AnswersAll(), bad=Raises()
    )
    assert Image.tools(module) == {"alone": (alone, ToolOptions(serial=True))}


def test_a_tool_may_have_two_attributes_but_no_name_two_tools() -> None:
    module = types.ModuleType("shop")
    vars(module).update(alone=alone, alias=alone)
    assert list(Image.tools(module)) == ["alone"]
    vars(module).update(other=tool(name="alone")(lambda: None))
    with pytest.raises(LoadError, match=rf"two tools named 'alone', {__name__}.alone and .*lambda>: .*@tool\(name="):
        Image.tools(module)
    vars(module).update(other=tool(name="other.alone")(lambda: None))
    assert list(Image.tools(module)) == ["alone", "other.alone"]
