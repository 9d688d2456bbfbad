"""What callers may know of tools before they call one (handlers/schema.py): one case for each rule."""

from __future__ import annotations

import functools
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal, Optional

import pydantic
import pytest

from clutch._worker.handlers.schema import NOT_JSON, POOL_BYTES_MAX, TOO_LARGE, describe


class Model(pydantic.BaseModel):
    number: int = pydantic.Field(alias="nr")


@dataclass
class Measured:
    count: int
    mean: float | None


class Unknown: ...


UNSAID = object()
INT = {"type": "integer", "format": "int64"}
DOUBLE = {"type": "number", "format": "double"}


def told(*functions: Callable[..., Any], owner: type | None = None) -> dict[str, dict[str, Any]]:
    named = {getattr(function, "__name__", "tool"): function for function in functions}
    return {tool["name"]: tool for tool in describe(named, owner, "api")["tools"]}


def parameter_of(hint: Any) -> Any:
    def tool(value): ...

    tool.__annotations__ = {"value": hint}
    return told(tool)["tool"]["parameters"]["properties"]["value"]


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (int, INT),
        (Any, {}),
        (Optional[int], {"anyOf": [INT, {"type": "null"}]}),  # noqa: UP045
        (Literal["a", 1], {"enum": ["a", 1]}),
        (Annotated[str, pydantic.Field(max_length=3)], {"type": "string", "maxLength": 3}),
        (bytes, {"type": "string", "contentEncoding": "base64"}),
        (tuple[int, str], {"type": "array", "prefixItems": [INT, {"type": "string"}],
                           "minItems": 2, "maxItems": 2}),
        (float, DOUBLE),
        (dict[str, float], {"type": "object", "additionalProperties": DOUBLE}),
        (Annotated[int, pydantic.Field(ge=-(1 << 63), lt=1 << 63)],
         {"type": "integer", "minimum": -(1 << 63), "exclusiveMaximum": 1 << 63}),
        (Annotated[int, pydantic.Field(gt=0)], {**INT, "exclusiveMinimum": 0}),
        (Annotated[float, pydantic.Field(json_schema_extra={"format": "float"})], {**DOUBLE, "format": "float"}),
        (bool, {"type": "boolean"}),
        (Unknown, {}),
    ],
)  # fmt: skip
def test_parameters(hint: Any, schema: Any) -> None:
    assert parameter_of(hint) == schema


def test_a_decimal_has_any_number_of_digits() -> None:
    assert {"type": "number"} in parameter_of(Decimal)["anyOf"]


def test_members_of_models_have_formats_too() -> None:
    def returns_model() -> Measured: ...

    result = told(returns_model)["returns_model"]["result"]
    members = result["$defs"]["Measured"]["properties"]
    assert (members["count"], members["mean"]["anyOf"]) == (INT, [DOUBLE, {"type": "null"}])


def gives_values() -> Generator[int, None, str]:
    yield 1
    return ""


async def gives_later() -> AsyncGenerator[int, None]:
    yield 1


def gives_unhinted():
    yield 1


def gives_iterable() -> Iterable[int]:
    yield 1


def returns_one() -> Iterator[int]:
    return (number for number in range(3))


def returns_list() -> list[int]: ...
def returns_awaitable() -> Awaitable[int]: ...
async def returns_later() -> int: ...
def returns_none() -> None: ...


@pytest.mark.parametrize(
    ("function", "stream", "result"),
    [
        (gives_values, True, INT),
        (gives_later, True, INT),
        (gives_unhinted, True, {}),
        (gives_iterable, True, INT),
        (returns_one, True, INT),
        (returns_list, False, {"type": "array", "items": INT}),
        (returns_awaitable, False, INT),
        (returns_later, False, INT),
        (returns_none, False, {"type": "null"}),
    ],
)
def test_results(function: Callable[..., Any], stream: bool, result: Any) -> None:
    (tool,) = told(function).values()
    assert (tool["stream"], tool["result"], tool["note"]) == (stream, result, None)


def test_defaults_are_shown_where_json_has_them() -> None:
    def tool(a: int, b: int | None = None, c: Any = (1, 2), d: float = float("nan"), e: Any = UNSAID): ...

    members = told(tool)["tool"]["parameters"]["properties"]
    assert (members["b"]["default"], members["c"]["default"]) == (None, [1, 2])
    assert "default" not in members["a"] | members["d"] | members["e"]


def test_members_have_the_names_that_calls_use() -> None:
    def tool(model: Model) -> Model: ...

    one = told(tool)["tool"]
    for schema in (one["parameters"], one["result"]):
        assert list(schema["$defs"]["Model"]["properties"]) == ["nr"]


class Target:
    def method(self, a: int) -> int: ...
    @classmethod
    def of_class(cls, a: int) -> int: ...
    @staticmethod
    def alone(a: int) -> int: ...


def test_methods_have_no_self() -> None:
    for tool in told(Target.method, Target.of_class, Target.alone, owner=Target).values():
        assert list(tool["parameters"]["properties"]) == ["a"], tool["name"]
        assert tool["signature"] in ("(a: int) -> int", "(a: 'int') -> 'int'")


def test_a_partial_has_the_docstring_of_its_function() -> None:
    def add(a: int, b: int) -> int:
        """Adds.

        Two numbers.
        """

    part = functools.partial(add, b=1)
    part.__name__ = "part"  # type: ignore[attr-defined]
    one = told(part)["part"]
    assert (one["summary"], one["description"]) == ("Adds.", "Adds.\n\nTwo numbers.")
    assert (one["parameters"]["required"], one["parameters"]["properties"]["b"]["default"]) == (["a"], 1)


def test_notes_say_why_a_schema_is_empty() -> None:
    def unknown(value: Unknown, more: int) -> int: ...
    def by_place(value: int, /) -> int: ...

    found = told(unknown, by_place)
    assert found["unknown"]["parameters"]["properties"] == {"value": {}, "more": INT}
    assert found["unknown"]["note"].startswith("parameters: Cannot generate a JsonSchema")
    assert (found["by_place"]["parameters"], found["by_place"]["result"]) == ({}, INT)
    assert "positional-only" in found["by_place"]["note"]


def test_a_hint_whose_code_fails_takes_nothing_from_the_others() -> None:
    class Broken:
        @classmethod
        def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
            raise ZeroDivisionError("no schema today")

    def broken() -> Broken: ...
    def sound() -> int: ...

    broken.__annotations__ = {"return": Broken}
    found = told(broken, sound)
    assert (found["broken"]["result"], found["broken"]["note"]) == ({}, "result: no schema today")
    assert found["sound"]["result"] == INT


def test_what_is_too_large_or_no_text_is_withheld() -> None:
    def small() -> int: ...
    def odd() -> int: ...
    def wide(value: int) -> int: ...

    odd.__doc__ = "\ud800"
    wide.__annotations__["value"] = Literal[tuple(f"{number:0999}" for number in range(POOL_BYTES_MAX // 1000))]
    found = describe({one.__name__: one for one in (small, odd, wide)}, None, "api")
    tools = {tool["name"]: tool for tool in found["tools"]}
    assert (tools["odd"]["note"], tools["wide"]["note"], tools["small"]["note"]) == (NOT_JSON, TOO_LARGE, None)
    assert (tools["wide"]["parameters"], tools["wide"]["shared"]["parameters"]) == ({}, {})
    assert tools["small"]["shared"]["result"] == INT
    assert len(json.dumps(found, allow_nan=False)) < POOL_BYTES_MAX
    json.dumps(found, ensure_ascii=False).encode()


def test_shared_schemas_refer_to_definitions_of_the_pool() -> None:
    def one(model: Model) -> Model: ...
    def two(model: Model) -> list[Model]: ...

    found = describe({"one": one, "two": two}, None, "api")
    assert all(name.startswith("api.") for name in found["definitions"])
    text = json.dumps([tool["shared"] for tool in found["tools"]] + [found["definitions"]])
    references = {part.partition('"')[0] for part in text.split('"#/components/schemas/')[1:]}
    assert references <= found["definitions"].keys()
    assert not any("result" in name for name in found["definitions"])
