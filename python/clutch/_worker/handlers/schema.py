"""Descriptions of the tools for callers: JSON schemas, docstrings, signatures.

Made once for each image, in the zygote, and only of pools that a network front can reach. Schemas come from the type
adapters that check the calls (json.py). Promises a result that is JSON and takes `POOL_BYTES_MAX` at most, whatever the
tools are: a hint that no schema can say is `{}`, with a note.

Each tool has its schemas in two forms: `parameters` and `result` stand alone, with the models that they need inside;
`shared` has those two with references into `definitions`, which the tools of the pool have in common.
"""

from __future__ import annotations

import inspect
import json
import types
import typing
from collections import abc
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ConfigDict, TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue, JsonSchemaWarningKind

from clutch._worker.handlers.json import adapter_of, arguments_of, default_as_json, hints_of, written
from clutch.errors import ConfigError
from clutch.tools import options_of

POOL_BYTES_MAX = 1 << 20
"""Maximum size of the description of one pool: half for the tools, half for shared definitions."""

TEXT_CHARS_MAX = 10_000
"""Maximum length of a docstring; the rest is cut."""

SIGNATURE_CHARS_MAX = 1000
UNKNOWN_SIGNATURE = "(…)"

TOO_LARGE = "not described: the schemas of this pool are too large"
NOT_JSON = "not described: its schema, or its docstring, cannot be written as JSON"

REFERENCE = "#/components/schemas/"
"""Place of the shared definitions in a document."""

RESULT = ConfigDict(arbitrary_types_allowed=True)

STREAMS = (abc.Iterator, abc.Generator, abc.AsyncIterator, abc.AsyncGenerator)
"""Type hints of streams; their first argument is the type of a value."""

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1

MODES: dict[str, JsonSchemaMode] = {"parameters": "validation", "result": "serialization"}
"""Modes of the schemas: what callers send, and what they get."""

Schema = dict[str, Any]


class Generator(GenerateJsonSchema):
    """JSON schemas as OpenAPI 3.1 takes them, without the titles that repeat the names of members.

    Numbers have formats, without which generators of clients take 32 bits for them.
    """

    ignored_warning_kinds: set[JsonSchemaWarningKind] = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def encode_default(self, dft: Any) -> Any:
        return default_as_json(dft)

    def float_schema(self, schema: Any) -> JsonSchemaValue:
        return {**super().float_schema(schema), "format": "double"}

    def decimal_schema(self, schema: Any) -> JsonSchemaValue:
        """Its number has any number of digits."""
        found = super().decimal_schema(schema)
        for choice in found.get("anyOf", ()):
            choice.pop("format", None)
        return found

    def int_schema(self, schema: Any) -> JsonSchemaValue:
        """A hint that allows for more than 64 bits has no format."""
        limits = (schema.get(name, 0) for name in ("ge", "gt", "le", "lt"))
        fits = all(INT64_MIN <= limit <= INT64_MAX for limit in limits)
        return super().int_schema(schema) | ({"format": "int64"} if fits else {})

    def bytes_schema(self, schema: Any) -> JsonSchemaValue:
        return {"type": "string", "contentEncoding": "base64"}


class Lenient(Generator):
    """Types without a schema become `{}` instead of failing the whole tool."""

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> JsonSchemaValue:
        return {}


class Description:
    """The description of one tool."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = name
        self.notes: list[str] = []
        hints = hints_of(function)
        self.stream, value = _result(function, hints.get("return", Any))
        self.adapters: dict[str, TypeAdapter[Any]] = {}
        self._alone: dict[str, Schema] = {}
        self._adapt("parameters", lambda: arguments_of(name, function, hints))
        self._adapt("result", lambda: adapter_of(f"{name}_result", {"result": value}, RESULT))
        self._text = _text(function)
        self._problems = _problems(function)
        self._signature = _signature(function)

    def _adapt(self, what: str, make: Callable[[], TypeAdapter[Any]]) -> None:
        """Keeps an adapter and its schema, or a note where there can be none."""
        try:
            adapter = make()
            self._alone[what] = self._schema(what, adapter)
            self.adapters[what] = adapter
        except ConfigError as error:
            self.notes.append(str(error))
        except Exception as error:  # a hint may run code of its user's
            self.notes.append(f"{what}: {_first_line(error)}")

    def _schema(self, what: str, adapter: TypeAdapter[Any]) -> Schema:
        try:
            return adapter.json_schema(schema_generator=Generator, mode=MODES[what])
        except PydanticInvalidForJsonSchema as error:
            self.notes.append(f"{what}: {_first_line(error)}")
            return adapter.json_schema(schema_generator=Lenient, mode=MODES[what])

    def told(self) -> dict[str, Any]:
        parameters, result = (self._alone.get(what, {}) for what in MODES)
        parameters.pop("title", None)
        members = result.pop("properties", {})
        kept = {"$defs": result["$defs"]} if "$defs" in result else {}
        return {
            "name": self.name,
            "signature": self._signature,
            "summary": self._text.partition("\n")[0].strip(),
            "description": self._text,
            "stream": self.stream,
            "note": "; ".join(self.notes) or None,
            "problems": self._problems,
            "parameters": parameters,
            "result": members.get("result", {}) | kept,
        }

    def withheld(self, why: str) -> dict[str, Any]:
        """A description with the name only."""
        self.adapters.clear()
        empty = {"signature": UNKNOWN_SIGNATURE, "summary": "", "description": "", "parameters": {}, "result": {}}
        return {"name": self.name, **empty, "stream": self.stream, "note": why, "problems": []}


def describe(tools: Mapping[str, Callable[..., Any]], owner: type | None, pool: str) -> dict[str, Any]:
    """Describe all tools of a pool. `owner`: the class that has them as methods."""
    descriptions = [Description(name, _as_called(function, owner)) for name, function in sorted(tools.items())]
    told, bytes_left = [], POOL_BYTES_MAX // 2
    for description in descriptions:
        one = description.told()
        size = _size(one)
        if size is None or size > bytes_left:
            one = description.withheld(NOT_JSON if size is None else TOO_LARGE)
        else:
            bytes_left -= size
        told.append(one)
    shared, definitions = _shared(descriptions, pool)
    for one in told:
        one["shared"] = {"parameters": {}, "result": {}} | shared.get(one["name"], {})
    return {"tools": told, "definitions": definitions}


def _shared(descriptions: list[Description], pool: str) -> tuple[dict[str, Schema], Schema]:
    """Schemas of each tool, and what they refer to; nothing where that is too large. The names of the definitions begin
    with that of the pool, so that those of several pools can stand side by side."""
    inputs: list[tuple[tuple[str, str], JsonSchemaMode, TypeAdapter[Any]]] = [
        ((description.name, what), MODES[what], adapter)
        for description in descriptions
        for what, adapter in description.adapters.items()
    ]
    prefix = f"{REFERENCE}{pool}."
    template = f"{prefix}{{model}}"
    found, whole = TypeAdapter.json_schemas(inputs, schema_generator=Lenient, ref_template=template)
    definitions = whole.get("$defs", {})
    shared: dict[str, Schema] = {}
    for ((name, what), _), schema in found.items():
        if what == "result":
            wrapper = definitions.pop(schema.get("$ref", "").removeprefix(prefix), schema)
            schema = wrapper["properties"]["result"]
        shared.setdefault(name, {})[what] = schema
    size = _size([shared, definitions])
    if size is None or size > POOL_BYTES_MAX // 2:
        return {}, {}
    return shared, {f"{pool}.{name}": schema for name, schema in definitions.items()}


def _size(value: Any) -> int | None:
    """Size in bytes as JSON, or None if it is not JSON (an infinite default, text that is not Unicode)."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
        return len(json.dumps(value, allow_nan=False))  # as the zygote sends it
    except (ValueError, TypeError, RecursionError):
        return None


def _as_called(function: Callable[..., Any], owner: type | None) -> Callable[..., Any]:
    """The signature, without `self` for methods of a class target."""
    if owner is None or not inspect.isfunction(function):
        return function
    members = (value for kind in owner.__mro__ for value in vars(kind).values())
    static = any(isinstance(value, staticmethod) and value.__func__ is function for value in members)
    return function if static else types.MethodType(function, owner)


def _result(function: Callable[..., Any], hint: Any) -> tuple[bool, Any]:
    """Returns whether the tool streams, and the type of its result or of one streamed value."""
    inner = written(function)
    generates = inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner)
    origin = typing.get_origin(hint) or hint
    arguments = typing.get_args(hint)
    if generates or origin in STREAMS:
        return True, arguments[0] if arguments else Any
    if origin in (abc.Awaitable, abc.Coroutine):
        return _result(function, arguments[-1] if arguments else Any)
    return False, hint


def _text(function: Callable[..., Any]) -> str:
    inner = written(function)
    text = inspect.getdoc(inner) or ""
    return text if len(text) <= TEXT_CHARS_MAX else text[:TEXT_CHARS_MAX] + "…"


def _problems(function: Callable[..., Any]) -> list[dict[str, Any]]:
    """Returns the problems that the tool is declared to raise."""
    options = options_of(function)
    if options is None or not options.raises:
        return []
    from clutch.http_problem import declared

    return [declared(one) for one in options.raises]


class Verbatim(str):
    """A hint that is written as it was, without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _signature(function: Callable[..., Any]) -> str:
    try:
        return _written(inspect.signature(function))
    except Exception:  # there is none, or a default has no repr
        return UNKNOWN_SIGNATURE


def _written(signature: inspect.Signature) -> str:
    parameters = [one.replace(annotation=_verbatim(one.annotation)) for one in signature.parameters.values()]
    returned = _verbatim(signature.return_annotation)
    text = str(signature.replace(parameters=parameters, return_annotation=returned))
    return text if len(text) <= SIGNATURE_CHARS_MAX else text[:SIGNATURE_CHARS_MAX] + "…"


def _verbatim(annotation: Any) -> Any:
    return Verbatim(annotation) if isinstance(annotation, str) else annotation


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
