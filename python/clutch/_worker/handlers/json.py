"""Calls in JSON: arguments are validated by the tool's type hints, results are encoded.

Owns both directions of one tool, and imports pydantic: only workers that a network front can reach import this file.
Promises that what cannot be a value on the other side is a typed error that names where it lies, never a guess.

* Arguments are what pydantic makes of them by the hint (its usual, lax rules; `Annotated[int, Strict()]` is strict).
  Without a hint they are as JSON has them. `bytes` come as base64.
* Results are written by their own type: int exact, None null, tuples and sets as arrays, dataclasses and mappings as
  objects, pydantic models by their own configuration; datetime, UUID, Decimal, Enum, Path as pydantic writes them.
  `bytes` are an error unless the return hint says bytes somewhere; then they are base64. NaN and infinity are errors.
* Keys: strings; int, float, bool and None as JSON text; what pydantic writes as a string (dates, UUID, Enum) as that.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import json
import math
import re
import types
import typing
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from typing import Any, NotRequired

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import PydanticSerializationError, from_json, to_jsonable_python
from typing_extensions import TypedDict

from clutch.errors import BadArguments, ConfigError

PROBLEMS_MAX = 20
"""Maximum number of problems listed in one error."""

PROBLEMS_COUNTED_MAX = 1000
"""Above this number none is listed: a body of some megabytes can have millions of problems."""

INPUT_CHARS_MAX = 1000
"""Inputs longer than this (as JSON) are left out of errors."""

INPUT_BITS_MAX = 256
"""Inputs with larger integers are left out of errors."""

INPUT_DEPTH_MAX = 20
"""Inputs nested deeper than this are left out of errors."""

PATH_PARTS_MAX = 12
"""Maximum number of path components shown."""

ARGUMENTS = ConfigDict(allow_inf_nan=False, val_json_bytes="base64", arbitrary_types_allowed=True)

Place = tuple[str | int, ...]


class EncodeError(Exception):
    """A result that JSON cannot carry. `path` says where: `$.items[3].price`."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class JsonFace:
    """A tool as network callers see it.

    Raises `ConfigError` when the tool cannot be called by named arguments, or pydantic cannot check one of its hints.
    """

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = name
        hints = hints_of(function)
        self._validate = arguments_of(name, function, hints).validator.validate_json
        self._encoder = Encoder(takes_bytes=_mentions_bytes(hints.get("return"), set()))

    def decode(self, body: bytes) -> dict[str, Any]:
        """The keyword arguments in a JSON object. Raises `BadArguments`."""
        try:
            arguments = self._validate(body)
        except ValidationError as error:
            raise self._bad(*_problems(error)) from None
        if b"NaN" in body or b"Infinity" in body:
            self._refuse_constants(body)
        return arguments

    def encode(self, value: Any) -> bytes:
        """A result as JSON. Raises `EncodeError`."""
        return self._encoder.encode(value)

    def encode_item(self, value: Any) -> bytes:
        """Encodes one value of a stream, by the same rules."""
        return self._encoder.encode(value)

    def bad(self, problem: str) -> BadArguments:
        """The error for arguments that do not fit the parameters."""
        return BadArguments(f"tool '{self.name}': {problem}")

    def _refuse_constants(self, body: bytes) -> None:
        """NaN and Infinity are not JSON; where no hint says float, pydantic lets them pass."""
        place = next(_constants(from_json(body, allow_inf_nan=True), ()), None)
        if place is not None:
            what = "NaN and Infinity are not JSON"
            raise self._bad([{"loc": list(place), "msg": what, "type": "finite_number"}], 1)

    def _bad(self, problems: list[dict[str, Any]], count: int) -> BadArguments:
        first = problems[0]
        where = ".".join(str(part) for part in first["loc"])
        more = f" (and {count - 1} more)" if count > 1 else ""
        text = f"{where}: {first['msg']}" if where else first["msg"]
        return BadArguments(f"tool '{self.name}': {text}{more}", problems=problems)


# ---- arguments


def arguments_of(name: str, function: Callable[..., Any], hints: dict[str, Any]) -> TypeAdapter[Any]:
    """The validator of the body: a mapping of the tool's parameters; those without a default are required."""
    fields: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    extra: typing.Literal["allow", "forbid"] = "forbid"
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name, Any)
        required = parameter.default is parameter.empty
        match parameter.kind:
            case parameter.POSITIONAL_ONLY if required:
                raise ConfigError(f"tool '{name}': parameter '{parameter.name}' is positional-only; calls are by name")
            case parameter.VAR_KEYWORD:
                extra = "allow"
            case parameter.POSITIONAL_OR_KEYWORD | parameter.KEYWORD_ONLY:
                _check(name, parameter.name, hint)
                fields[parameter.name] = hint if required else NotRequired[hint]
                defaults |= {} if required else {parameter.name: parameter.default}
    config = ARGUMENTS | ConfigDict(extra=extra, json_schema_extra=functools.partial(_add_defaults, defaults))
    return adapter_of(f"{name}_arguments", fields, config)


def adapter_of(name: str, fields: dict[str, Any], config: ConfigDict) -> TypeAdapter[Any]:
    """A TypedDict with these members; the name becomes the name of its schema."""
    mapping: Any = TypedDict(name, fields)  # pyright: ignore[reportArgumentType]
    mapping.__pydantic_config__ = config
    return TypeAdapter(mapping)


def _add_defaults(defaults: dict[str, Any], schema: dict[str, Any]) -> None:
    """Adds the defaults of parameters, as far as JSON has them: to pydantic, a parameter with a default may be
    left out."""
    members = schema.get("properties", {})
    for name in defaults.keys() & members.keys():
        with suppress(PydanticSerializationError):
            members[name].setdefault("default", default_as_json(defaults[name]))


def default_as_json(value: Any) -> Any:
    """A default value for a schema. Raises `PydanticSerializationError` for values outside JSON, infinities too."""
    try:
        plain = to_jsonable_python(value, bytes_mode="base64")
        json.dumps(plain, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise PydanticSerializationError(str(error)) from None
    return plain


def _check(tool: str, parameter: str, hint: Any) -> None:
    try:
        adapter_of("argument", {parameter: hint}, ARGUMENTS).rebuild(raise_errors=True)
    except (PydanticUserError, NameError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"tool '{tool}': the type of parameter '{parameter}' cannot be checked: {reason}") from error


def written(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with the hints and the docstring: inside a partial, or `__call__` of an object."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The type hints by parameter; one that does not resolve counts as none."""
    function = written(function)
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception:
        return _hints_one_by_one(inspect.unwrap(function))


def _hints_one_by_one(function: Callable[..., Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    names = getattr(function, "__globals__", {})
    for name, hint in getattr(function, "__annotations__", {}).items():
        alone = types.SimpleNamespace(__annotations__={name: hint})
        try:
            found |= typing.get_type_hints(alone, globalns=names, include_extras=True)
        except Exception:
            found[name] = Any
    return found


def _problems(error: ValidationError) -> tuple[list[dict[str, Any]], int]:
    count = error.error_count()
    if count > PROBLEMS_COUNTED_MAX:
        what = f"{count} values are wrong"
        return [{"loc": [], "msg": what, "type": "too_many_problems"}], count
    found = error.errors(include_url=False, include_context=False)
    return [_problem(problem) for problem in found[:PROBLEMS_MAX]], count


def _problem(found: Mapping[str, Any]) -> dict[str, Any]:
    problem = {"loc": list(found["loc"]), "msg": found["msg"], "type": found["type"]}
    # Without a place it is the whole body.
    if found["loc"] and _room_after(found["input"], INPUT_CHARS_MAX, INPUT_DEPTH_MAX) >= 0:
        problem["input"] = found["input"]
    return problem


def _room_after(value: Any, room: int, depth: int) -> int:
    """Returns how many of `room` characters the value leaves as JSON; below 0: it does not fit, or is not JSON."""
    if room < 0 or depth < 0:
        return -1
    if value is None or isinstance(value, bool):
        return room - 4
    if isinstance(value, str):
        return room - len(value) - 2
    if isinstance(value, int):
        return room - value.bit_length() // 3 - 1 if value.bit_length() <= INPUT_BITS_MAX else -1
    if isinstance(value, float):
        return room - 8 if math.isfinite(value) else -1
    if isinstance(value, list):
        return _room_after_all(value, room - 2, depth - 1)
    if isinstance(value, dict) and all(isinstance(key, str) for key in itertools.islice(value, room)):
        return _room_after_all(itertools.chain.from_iterable(value.items()), room - 2, depth - 1)
    return -1


def _room_after_all(values: Iterable[Any], room: int, depth: int) -> int:
    for value in values:
        room = _room_after(value, room - 1, depth)
        if room < 0:
            return -1
    return room


def _constants(value: Any, place: Place) -> Iterator[Place]:
    """Paths of NaN and infinities."""
    if isinstance(value, float) and not math.isfinite(value):
        yield place
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _constants(item, (*place, key))
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from _constants(item, (*place, at))


# ---- results


class Unencodable(Exception):
    """Reason why one value cannot be encoded; the code that catches it knows the path."""


class Encoder:
    """Values to JSON. The straight way is the standard library's encoder; what stops it is looked at again, slowly, to
    name where it lies."""

    def __init__(self, takes_bytes: bool) -> None:
        self._takes_bytes = takes_bytes
        encoder = json.JSONEncoder(
            ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":"), default=self._simpler
        )
        self._text = encoder.encode

    def encode(self, value: Any) -> bytes:
        try:
            return self._text(value).encode()
        except Exception:  # what stopped it, the walk finds again and names
            pass
        return self._text(Plain(self._simpler).of(value)).encode()

    def _simpler(self, value: Any) -> Any:
        """Convert a value that is not JSON one step closer to it. Raises `Unencodable`."""
        if isinstance(value, BaseModel):
            return _by_pydantic(value)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        if isinstance(value, bytes | bytearray | memoryview):
            return self._base64(value)
        if isinstance(value, Mapping):
            return dict(value)
        if isinstance(value, set | frozenset):
            return _in_order(value)
        if isinstance(value, deque | type({}.keys()) | type({}.values()) | range):
            return list(value)
        return _by_pydantic(value)

    def _base64(self, value: bytes | bytearray | memoryview) -> str:
        if not self._takes_bytes:
            raise Unencodable("bytes; they travel as base64 when the tool's return hint says bytes")
        return b64encode(value).decode()


def _in_order(values: Set[Any]) -> list[Any]:
    """The same in each process, where values can be compared or say what they are."""
    with suppress(TypeError):
        if not any(isinstance(value, frozenset) for value in values):  # which have no order
            return sorted(values)
    return sorted(values, key=lambda value: repr(_in_order(value) if isinstance(value, frozenset) else value))


def _by_pydantic(value: Any) -> Any:
    try:
        return to_jsonable_python(value, inf_nan_mode="constants")
    except (PydanticSerializationError, ValueError) as error:
        raise Unencodable(f"{_type_name(value)} has no form in JSON ({error})") from error


class Plain:
    """Walk through a value that could not be written: ends in what is wrong and where, or in a value that can be
    written (keys that are dates, say)."""

    def __init__(self, simpler: Callable[[Any], Any]) -> None:
        self._simpler = simpler
        self._path: list[str] = []
        self._above: set[int] = set()
        """Ids of the containers that enclose the current value."""

    def of(self, value: Any) -> Any:
        try:
            return self._plain(value)
        except Unencodable as error:
            raise EncodeError(self._place(), str(error)) from None
        except RecursionError:
            raise EncodeError(self._place(), "nested too deep") from None
        except Exception as error:
            raise EncodeError(self._place(), f"{_type_name(error)}: {error}") from error

    def _plain(self, value: Any) -> Any:
        match value:
            case str():
                return _checked_text(value)
            case None | bool():
                return value
            case int() | float():
                return _checked_number(value)
            case dict():
                with self._inside(value):
                    return {_key(key): self._at(_step(key), item) for key, item in value.items()}
            case list() | tuple():
                return self._list(value)
            case _:
                with self._inside(value):
                    return self._plain(self._simpler(value))

    def _list(self, values: Iterable[Any]) -> list[Any]:
        with self._inside(values):
            return [self._at(f"[{at}]", item) for at, item in enumerate(values)]

    def _at(self, step: str, value: Any) -> Any:
        self._path.append(step)
        plain = self._plain(value)
        self._path.pop()
        return plain

    @contextmanager
    def _inside(self, container: Any) -> Iterator[None]:
        if id(container) in self._above:
            raise Unencodable("the value contains itself")
        self._above.add(id(container))
        yield
        self._above.discard(id(container))

    def _place(self) -> str:
        shown = self._path[:PATH_PARTS_MAX]
        return "$" + "".join(shown) + ("…" if len(self._path) > len(shown) else "")


def _step(key: Any) -> str:
    """A key as a component of a path."""
    if isinstance(key, str) and re.fullmatch(r"[A-Za-z_]\w*", key):
        return f".{key}"
    text = ascii(key)
    return f"[{text[:INPUT_CHARS_MAX]}]"


def _key(key: Any) -> str | int | float | bool | None:
    if isinstance(key, str):
        return _checked_text(key)
    if key is None or isinstance(key, bool):
        return key
    if isinstance(key, int | float):
        return _checked_number(key)
    written = None if isinstance(key, bytes | tuple | frozenset) else _by_pydantic(key)
    if isinstance(written, str | int):
        return written
    raise Unencodable(f"a key of type {_type_name(key)}; keys of a JSON object are strings")


def _checked_text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Unencodable(f"text that is not Unicode (a lone surrogate at {error.start})") from error
    return text


def _checked_number(number: int | float) -> int | float:
    if isinstance(number, float):
        if not math.isfinite(number):
            raise Unencodable(f"{number} is not a number in JSON")
        return number
    try:
        int.__repr__(number)
    except ValueError as error:
        raise Unencodable(f"a whole number that is too long ({error})") from None
    return number


def _type_name(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _mentions_bytes(hint: Any, seen: set[int]) -> bool:
    """Returns whether a hint says bytes somewhere: list[bytes], a dataclass with such a field."""
    if hint in (bytes, bytearray, memoryview):
        return True
    if hint is None or id(hint) in seen:
        return False
    seen.add(id(hint))
    inner = [*typing.get_args(hint), getattr(hint, "__value__", None)]
    if isinstance(hint, type) and (dataclasses.is_dataclass(hint) or hasattr(hint, "__required_keys__")):
        inner += _hints_of_class(hint)
    if isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields"):
        inner += _hints_of_class(hint)
    return any(_mentions_bytes(part, seen) for part in inner)


def _hints_of_class(kind: type) -> Iterable[Any]:
    try:
        return typing.get_type_hints(kind).values()
    except Exception:
        return ()
