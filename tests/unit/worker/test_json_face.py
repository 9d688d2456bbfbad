"""Calls that come as JSON: what a worker makes of arguments and results (handlers/json.py)."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import decimal
import enum
import functools
import json
import math
import pathlib
import typing
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pydantic
import pytest

from clutch._worker.handlers.json import PROBLEMS_MAX, EncodeError, JsonFace
from clutch.errors import BadArguments, ConfigError

if typing.TYPE_CHECKING:
    from nowhere import Unknown


class Point(pydantic.BaseModel):
    x: int
    y: int = 0


@dataclasses.dataclass
class Item:
    name: str
    price: float = 1.0


@dataclasses.dataclass
class Blob:
    data: bytes


class Color(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Pair(typing.NamedTuple):
    left: int
    right: str


def order(item: Item, count: int, note: str | None = None, *, at: datetime.date | None = None) -> Any: ...
def anything(value): ...
def blob(data: bytes, more: list[bytes] | None = None) -> bytes: ...
def whatever(**options: Any) -> Any: ...


def decoded(function: Any, arguments: Any) -> dict[str, Any]:
    return JsonFace("tool", function).decode(json.dumps(arguments).encode())


def refused(function: Any, body: bytes) -> BadArguments:
    with pytest.raises(BadArguments) as caught:
        JsonFace("tool", function).decode(body)
    json.dumps(caught.value.problems, allow_nan=False)
    return caught.value


def encoded(value: Any, function: Any = anything) -> Any:
    return json.loads(JsonFace("tool", function).encode(value))


def unencodable(value: Any, function: Any = anything) -> EncodeError:
    with pytest.raises(EncodeError) as caught:
        JsonFace("tool", function).encode(value)
    return caught.value


# ---- arguments


def test_arguments_become_what_the_hints_say():
    given = {"item": {"name": "tea", "price": 2.5}, "count": 3, "at": "2024-02-29"}
    assert decoded(order, given) == {"item": Item("tea", 2.5), "count": 3, "at": datetime.date(2024, 2, 29)}


def test_defaults_are_left_to_the_function():
    assert decoded(order, {"item": {"name": "tea"}, "count": 3}) == {"item": Item("tea"), "count": 3}


def test_models_are_made():
    def draw(points: list[Point]) -> None: ...

    assert decoded(draw, {"points": [{"x": 1}, {"x": 2, "y": 3}]}) == {"points": [Point(x=1), Point(x=2, y=3)]}


def test_without_hints_values_stay_as_json_has_them():
    value = [1, 2**53 + 1, 2**70, 1.5, True, None, "é", {"a": []}]
    assert decoded(anything, {"value": value}) == {"value": value}
    assert [type(part) for part in decoded(anything, {"value": value})["value"]] == [type(part) for part in value]


def test_bytes_come_as_base64_of_either_alphabet():
    data = bytes(range(256))
    both = [base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode()]
    assert decoded(blob, {"data": both[0], "more": both}) == {"data": data, "more": [data, data]}


@pytest.mark.parametrize(
    ("arguments", "place", "kind"),
    [
        ({}, ["item"], "missing"),
        ({"item": {"name": "tea"}, "count": "x"}, ["count"], "int_parsing"),
        ({"item": {"name": "tea", "price": "free"}, "count": 1}, ["item", "price"], "float_parsing"),
        ({"item": {"name": "tea"}, "count": 1, "cuont": 1}, ["cuont"], "extra_forbidden"),
        ({"item": {"name": "tea"}, "count": 1, "at": "tomorrow"}, ["at"], "date_from_datetime_parsing"),
        ({"item": {"name": "tea", "price": math.nan}, "count": 1}, ["item", "price"], "finite_number"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], place: list[str], kind: str):
    error = refused(order, json.dumps(arguments).encode())
    assert [(problem["loc"], problem["type"]) for problem in error.problems][:1] == [(place, kind)]
    assert ".".join(place) in str(error)
    assert "tool" in str(error)


def test_all_problems_are_told_at_once():
    error = refused(order, b'{"count": "x", "extra": [1, 2]}')
    assert [problem["loc"] for problem in error.problems] == [["item"], ["count"], ["extra"]]
    assert error.problems[1]["input"] == "x"
    assert "and 2 more" in str(error)


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"", "EOF"),
        (b"not json", "expected"),
        (b"\xff", "JSON"),
        (b'{"value": "\xff"}', "unicode"),
        (b'{"value": 1', "EOF"),
        (b'{"value": 1} x', "trailing"),
        (b"[1]", "object"),
        (b'"text"', "object"),
        (b"null", "object"),
        (b'{"value": ' + b"[" * 5000 + b"]" * 5000 + b"}", "recursion"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_a_body_that_is_no_json_object_is_refused(body: bytes, what: str):
    error = refused(anything, body)
    assert what in str(error)
    assert len(str(error)) < 300
    assert "input" not in error.problems[0]


def test_nan_and_infinity_are_refused_where_they_lie():
    assert refused(anything, b'{"value": {"a": [1, NaN]}}').problems[0]["loc"] == ["value", "a", 1]
    assert refused(anything, b'{"value": -Infinity}').problems[0]["loc"] == ["value"]
    assert decoded(anything, {"value": "NaN and Infinity"}) == {"value": "NaN and Infinity"}


def test_long_inputs_and_many_problems_stay_short():
    def total(numbers: list[int], text: int) -> None: ...

    error = refused(total, json.dumps({"numbers": ["x"] * 100, "text": "y" * 10_000}).encode())
    assert len(error.problems) == PROBLEMS_MAX
    assert f"and {101 - 1} more" in str(error)
    error = refused(total, json.dumps({"numbers": ["x"] * 50_000, "text": 1}).encode())
    assert error.problems[0]["msg"] == "50000 values are wrong"


DEEP: Any = functools.reduce(lambda inner, _: [inner], range(50), 1)


@pytest.mark.parametrize(
    "given", [[1, 2], {"a": None, "b": [True, 1.5]}, {}, [], "x", "y" * 900, 2**200, None, [[], {"c": ""}]], ids=repr
)
def test_an_input_is_told_as_it_was_given(given: Any):
    def total(number: float) -> None: ...

    def flag(on: bool) -> None: ...

    if isinstance(given, int):
        problem = refused(flag, json.dumps({"on": given}).encode()).problems[0]
    else:
        problem = refused(total, json.dumps({"number": given}).encode()).problems[0]
    assert problem["input"] == given and type(problem["input"]) is type(given)
    json.dumps(problem)


@pytest.mark.parametrize(
    "given",
    ["y" * 10_000, [2**100] * 10_000, {"k" * 2_000: 1}, {str(nr): nr for nr in range(1_000)}, [2**300], DEEP],
    ids=lambda given: type(given).__name__,
)
def test_an_input_that_is_too_large_is_left_out(given: Any):
    def total(number: float) -> None: ...

    problem = refused(total, json.dumps({"number": given}).encode()).problems[0]
    assert problem["loc"] == ["number"] and "input" not in problem


def test_methods_partials_and_objects_that_can_be_called():
    class Model:
        def predict(self, size: int) -> int: ...
        def __call__(self, size: int) -> int: ...

    assert decoded(Model().predict, {"size": 1}) == {"size": 1}
    assert decoded(Model(), {"size": 1}) == {"size": 1}
    assert decoded(functools.partial(order, count=1), {"item": {"name": "tea"}}) == {"item": Item("tea")}
    refused(Model().predict, b'{"self": 1, "size": 1}')


def test_keywords_of_any_name_reach_a_tool_that_takes_them():
    assert decoded(whatever, {"a": 1, "class": [2]}) == {"a": 1, "class": [2]}


def test_names_that_python_or_pydantic_use_themselves():
    def odd(_private: int, model_config: int, json: int, cls: int) -> None: ...

    given = {"_private": 1, "model_config": 2, "json": 3, "cls": 4}
    assert decoded(odd, given) == given


def test_hints_that_do_not_resolve_count_as_none():
    def late(value: Unknown, count: int) -> Unknown: ...

    assert decoded(late, {"value": [1], "count": 1}) == {"value": [1], "count": 1}
    refused(late, b'{"value": 1, "count": "x"}')


def test_strictness_is_the_tools_choice():
    def strict(count: Annotated[int, pydantic.Strict()]) -> None: ...

    assert decoded(order, {"item": {"name": "tea"}, "count": "3"})["count"] == 3
    refused(strict, b'{"count": "3"}')


def test_an_argument_of_a_class_that_json_cannot_make():
    class Matrix: ...

    def solve(matrix: Matrix, size: int = 1) -> None: ...

    solve.__annotations__["matrix"] = Matrix
    assert refused(solve, b'{"matrix": [1]}').problems[0]["type"] in ("is_instance_of", "needs_python_object")


def test_tools_that_cannot_be_called_by_name_say_so():
    def positional(value: int, /) -> None: ...

    with pytest.raises(ConfigError, match="'value' is positional-only"):
        JsonFace("tool", positional)


# ---- results


@pytest.mark.parametrize(
    ("value", "json_value"),
    [
        (2**53 + 1, 2**53 + 1),
        (2**70, 2**70),
        (None, None),
        (True, True),
        (1.5, 1.5),
        ("é\n\u2028", "é\n\u2028"),
        ((1, (2, "x")), [1, [2, "x"]]),
        (Pair(1, "x"), [1, "x"]),
        ({1, 2}, [1, 2]),
        (frozenset([1]), [1]),
        (range(3), [0, 1, 2]),
        ({"a": 1}.keys(), ["a"]),
        (datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC), "2024-02-29T12:00:00Z"),
        (datetime.timedelta(hours=1), "PT1H"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (decimal.Decimal("1.10"), "1.10"),
        (pathlib.Path("a/b"), "a/b"),
        (Color.RED, "red"),
        (Level.HIGH, 3),
        (Item("tea", 2.5), {"name": "tea", "price": 2.5}),
        ([Point(x=1)], [{"x": 1, "y": 0}]),
        ({1: "a", None: "b", False: "c", 1.5: "d"}, {"1": "a", "null": "b", "false": "c", "1.5": "d"}),
        ({datetime.date(2024, 2, 29): 1, uuid.UUID(int=1): 2, Color.RED: 3},
         {"2024-02-29": 1, "00000000-0000-0000-0000-000000000001": 2, "red": 3}),
    ],
)  # fmt: skip
def test_results_are_written_by_their_own_type(value: Any, json_value: Any):
    assert encoded(value) == json_value
    assert encoded({"a": [value]}) == {"a": [json_value]}


@pytest.mark.parametrize(
    ("value", "path", "what"),
    [
        (b"raw", "$", "bytes"),
        ({"items": [1, {"price": b"raw"}]}, "$.items[1].price", "bytes"),
        ({"items": [Item("tea", math.nan)]}, "$.items[0].price", "nan"),
        ([0.0, -math.inf], "$[1]", "-inf"),
        ([Blob(b"x")], "$[0].data", "bytes"),
        ({"a b": {"x-y": object()}}, "$['a b']['x-y']", "object"),
        ({(1, 2): 3}, "$", "a key of type tuple"),
        ({"a": {b"k": 3}}, "$.a", "a key of type bytes"),
        (["\ud800"], "$[0]", "surrogate"),
        ({"\ud800": 1}, "$", "surrogate"),
        ({math.inf: 1}, "$", "inf"),
        (JsonFace, "$", "type"),
    ],
)
def test_what_json_cannot_carry_is_named_with_its_place(value: Any, path: str, what: str):
    error = unencodable(value)
    assert error.path == path
    assert what in str(error)
    assert str(error).startswith(path)


def test_a_value_that_contains_itself():
    cycle: dict[str, Any] = {"list": []}
    cycle["list"].append(cycle)
    error = unencodable(cycle)
    assert (error.path, error.reason) == ("$.list[0]", "the value contains itself")
    shared = [1]
    assert encoded([shared, shared]) == [[1], [1]]


def test_a_value_that_is_nested_too_deep():
    value: list[Any] = []
    for _ in range(200_000):
        value = [value]
    error = unencodable(value)
    assert error.reason == "nested too deep"
    assert len(error.path) < 100


def test_a_number_with_too_many_digits():
    assert unencodable({"n": 10**5000}).path == "$.n"


def test_a_property_that_raises_is_an_encode_error():
    class Odd(dict):
        def items(self):
            raise RuntimeError("no items")

    assert "no items" in str(unencodable([{1, 2}, Odd(a=object())]))


def test_bytes_are_base64_where_the_return_hint_says_bytes():
    def named() -> list[bytes]: ...
    def in_a_class() -> dict[str, Blob]: ...
    def optional() -> bytes | None: ...
    def many() -> Iterator[bytes]: ...
    def later() -> AsyncIterator[tuple[str, bytes]]: ...

    data = bytes(range(256))
    text = base64.b64encode(data).decode()
    assert encoded(data, blob) == text
    assert encoded([data, memoryview(data)], named) == [text, text]
    assert encoded({"a": Blob(data)}, in_a_class) == {"a": {"data": text}}
    assert encoded(data, optional) == text
    for function in (many, later):
        assert json.loads(JsonFace("tool", function).encode_item(data)) == text
    assert decoded(blob, {"data": encoded(data, blob)}) == {"data": data}


def test_items_of_a_stream_are_one_line_each():
    face = JsonFace("tool", anything)
    assert face.encode_item({"text": "a\nb", "n": [1, 2]}) == b'{"text":"a\\nb","n":[1,2]}'


def test_errors_survive_pickling():
    import pickle

    error = unencodable([math.nan])
    again = pickle.loads(pickle.dumps(error))
    assert (again.path, again.reason, str(again)) == (error.path, error.reason, str(error))
