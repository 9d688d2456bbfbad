"""Failure 41: every kind of value comes back as it went, or there is a typed error that says what and where."""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import ipaddress
import math
import pathlib
import sys
import uuid
from collections import OrderedDict, deque, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import profile_tools
import pytest

from clutch import BadArguments, Pool, RemoteError

KB, MB = 1 << 10, 1 << 20
# A frame holds the smaller ones; the larger ones travel in shared memory.
SIZES = [0, 1, 100, 4 * KB, 64 * KB - 1, 64 * KB, 64 * KB + 1, 300 * KB, 3 * MB + 7]


class Colour(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    HIGH = 3


class Text(str):
    """Not exactly a str."""


@dataclass
class Point:
    x: int
    y: float


Pair = namedtuple("Pair", ["left", "right"])

ZONE = datetime.timezone(datetime.timedelta(hours=5, minutes=45))
VALUES = [
    None,
    True,
    False,
    0,
    -1,
    2**31,
    2**53 + 1,
    -(2**53) - 1,
    2**63 - 1,
    -(2**63),
    2**63,
    2**64,
    -(2**64),
    10**300,
    0.0,
    -0.0,
    5e-324,
    1.7976931348623157e308,
    0.1,
    math.inf,
    -math.inf,
    1 + 2j,
    "",
    "plain",
    "ünïcödé ☃ 🎈",
    "nul\0inside",
    "\ud800 alone",
    b"",
    b"\0\xff",
    bytearray(b"mutable"),
    (),
    (1,),
    (1, (2, (3, (None, True)))),
    [],
    [1, [2, [3]]],
    {},
    {"a": {"b": [1, (2,)]}, 1: 2, None: None, (1, 2): 3},
    set(),
    {1, 2},
    frozenset({"x"}),
    range(3, 9, 2),
    slice(1, None, 2),
    ...,
    datetime.datetime(2026, 1, 2, 3, 4, 5, 678901),
    datetime.datetime(2026, 1, 2, tzinfo=ZONE),
    datetime.datetime(2026, 10, 25, 2, 30, fold=1),
    datetime.date(1, 1, 1),
    datetime.time(23, 59, 59, 999999),
    datetime.timedelta(days=-1, microseconds=1),
    decimal.Decimal("1.10"),
    fractions.Fraction(1, 3),
    uuid.UUID(int=7),
    pathlib.PurePosixPath("/a/b"),
    ipaddress.ip_address("::1"),
    OrderedDict(b=1, a=2),
    deque([1, 2], maxlen=2),
    Colour.RED,
    Level.HIGH,
    Text("text"),
    Point(1, 2.5),
    Pair(1, "two"),
    int,
    len,
    profile_tools.add,
    ValueError("as a value"),
]


def same(left: Any, right: Any) -> bool:
    if isinstance(left, BaseException):
        return type(left) is type(right) and left.args == right.args
    return type(left) is type(right) and left == right and repr(left) == repr(right)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{type(value).__name__} {value!r:.19}")
@pytest.mark.parametrize("name", ["echo", "echo_async"])
def test_failure_41_values_come_back_as_they_went(pool: Pool, name: str, value: Any) -> None:
    assert same(pool.call(name, value), value)
    assert same(pool.call(name, value=value), value)
    assert same(pool.call(name, (value, [value]))[1][0], value)
    assert same(pool.submit(name, value).result(30), value)


def test_failure_41_nan(pool: Pool) -> None:
    for value in (math.nan, -math.nan):
        assert math.isnan(pool.call("echo", value))
        assert math.isnan(pool.call("echo", {"deep": [value]})["deep"][0])


def test_failure_41_the_same_object_twice_is_one_object(pool: Pool) -> None:
    inner: list[Any] = [1]
    first, second = pool.call("echo", [inner, inner])
    assert first is second
    cyclic: list[Any] = [0]
    cyclic.append(cyclic)
    back = pool.call("echo", cyclic)
    assert back[1] is back and back[0] == 0


def pattern(size: int) -> bytes:
    return (bytes(range(251)) * (size // 251 + 1))[:size]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_bytes_of_every_size(pool: Pool, kind: Callable[[bytes], Any], size: int) -> None:
    value = kind(pattern(size))
    assert same_bytes(pool.call("echo", value), value)
    assert same_bytes(pool.call("echo", value=value), value)
    assert same_bytes(pool.call("echo_async", (1, value))[1], value)
    assert same_bytes(pool.call("echo", {"nested": [value]})["nested"][0], value)
    assert same_bytes(pool.submit(profile_tools.echo, value).result(30), value)


def same_bytes(left: Any, right: Any) -> bool:
    return type(left) is type(right) and left == right


@pytest.mark.parametrize("size", SIZES)
def test_text_of_every_size(pool: Pool, size: int) -> None:
    for value in ("x" * size, "☃" * (size // 3), "x" * size + "\ud800"):
        assert pool.call("echo", value) == value
        assert pool.call("echo", [value]) == [value]


def test_tuples_that_share_their_items_are_not_written_out(pool: Pool) -> None:
    table = ((0,) * 3000,) * 3000
    back = pool.call("echo", table)
    assert back == table and back[0] is back[-1]
    (mapped,) = pool.map(profile_tools.echo, [table])
    assert mapped == table and mapped[0] is mapped[-1]


@pytest.mark.parametrize("size", SIZES)
def test_memoryviews_of_every_size(pool: Pool, size: int) -> None:
    data = pattern(size)
    assert pool.call("kind_of", memoryview(data)) == "memoryview"
    back = pool.call("echo", memoryview(data))
    assert isinstance(back, memoryview) and back == data


@pytest.mark.parametrize("size", SIZES)
def test_memoryviews_inside_of_others(pool: Pool, size: int) -> None:
    data = pattern(size)
    assert pool.call("kinds_of", [memoryview(data), {"a": memoryview(bytearray(data))}["a"]]) == ["memoryview"] * 2
    first, second = pool.call("echo", [memoryview(data), {"a": memoryview(data)}])
    for view in (first, second["a"]):
        assert type(view) is memoryview and view == data
    (mapped,) = pool.map(profile_tools.echo, [[memoryview(data)]])
    assert type(mapped[0]) is memoryview and mapped[0] == data


@pytest.mark.parametrize("count", [6, 60_000])
def test_memoryviews_of_other_items(pool: Pool, count: int) -> None:
    table = memoryview(np.arange(count, dtype=np.int32).reshape(2, -1))
    for back in (pool.call("echo", table), pool.call("echo", [table])[0]):
        assert (back.format, back.shape, back.tolist()) == (table.format, table.shape, table.tolist())


def test_memoryview_that_is_not_contiguous(pool: Pool) -> None:
    view = memoryview(bytes(range(100)))[::3]
    assert bytes(pool.call("echo", view)) == bytes(view)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_arrive_writable(pool: Pool, size: int, order: Any) -> None:
    array = np.asarray(np.arange(size // 8 * 2, dtype=np.float32).reshape(2, -1), order=order)
    before = array.copy()
    for back in (
        pool.call("echo", array),
        pool.call("echo_async", value=array),
        pool.call("echo", {"nested": (array,)})["nested"][0],
        pool.submit(profile_tools.echo, array).result(30),
    ):
        assert back.dtype == array.dtype and back.shape == array.shape
        assert np.array_equal(back, array)
        assert back.flags.writeable
        back += 1
    assert np.array_equal(array, before), "the caller's own is not touched"


def double_in_place(array: Any) -> Any:
    array *= 2
    return array


@pytest.mark.per_profile
@pytest.mark.parametrize("count", [10, 100_000])
def test_arrays_are_writable_in_the_worker(pool: Pool, count: int) -> None:
    array = np.arange(count, dtype=np.int64)
    assert np.array_equal(pool.call(double_in_place, array), 2 * np.arange(count))
    assert np.array_equal(array, np.arange(count))


def test_arrays_stay_valid_as_long_as_they_are_referenced(pool: Pool) -> None:
    kept = [pool.call("echo", np.full(50_000, number)) for number in range(20)]
    views = [array[10:20] for array in kept]
    for number in range(20):
        pool.call("echo", np.full(50_000, -number))
    del kept
    for number in range(20, 40):
        pool.call("echo", np.full(50_000, -number))
    for number, view in enumerate(views):
        assert (view == number).all()


def test_arrays_of_every_kind(pool: Pool) -> None:
    arrays = [
        np.array(3.5),
        np.array([], dtype=np.int8),
        np.array(["a", "bcd"]),
        np.array([None, {"a": 1}], dtype=object),
        np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
        np.arange(100_000)[::7],
        np.zeros((3, 0, 2)),
        np.array(["2026-01-01"], dtype="datetime64[D]"),
    ]
    for array in arrays:
        back = pool.call("echo", array)
        assert back.dtype == array.dtype and back.shape == array.shape and (back == array).all()
    scalar = pool.call("echo", np.float64(1.5))
    assert type(scalar) is np.float64 and scalar == 1.5


@pytest.mark.per_profile
def test_many_large_values_in_one_call(pool: Pool) -> None:
    values = [bytes([number % 256]) * (70 * KB) for number in range(300)]
    assert pool.call("echo", values) == values
    assert pool.call("everything", *values)[0] == tuple(values)
    arrays = [np.full(10_000, number) for number in range(300)]
    assert all(np.array_equal(*both) for both in zip(pool.call("echo", arrays), arrays, strict=True))


@pytest.mark.parametrize("kind", ["bytes", "array", "text"])
def test_failure_41_hundred_megabytes(pool: Pool, kind: str) -> None:
    count = 100 * MB
    if kind == "array":
        array = np.arange(count // 8)
        assert np.array_equal(pool.call("echo", array), array)
        return
    value = pattern(count) if kind == "bytes" else "0123456789" * (count // 10)
    back = pool.call("echo", value)
    # Not left to assert itself, which would print both.
    is_same = type(back) is type(value) and back == value
    assert is_same


def test_failure_41_deep_nesting(pool: Pool) -> None:
    depth = 100
    assert pool.call("echo", profile_tools.make_deep(depth)) == profile_tools.make_deep(depth)
    assert pool.call(profile_tools.make_deep, depth) == profile_tools.make_deep(depth)
    nested: Any = ()
    for _ in range(50):
        nested = (nested,)
    assert pool.call("echo", nested) == nested


def test_failure_41_nesting_too_deep_to_send_names_the_reason(pool: Pool) -> None:
    with pytest.raises(BadArguments, match="recursion"):
        pool.call("echo", profile_tools.make_deep(100_000))
    with pytest.raises(BadArguments, match="recursion"):
        pool.submit("echo", profile_tools.make_deep(100_000))
    with pytest.raises(RemoteError, match="recursion") as caught:
        pool.call(profile_tools.make_deep, 100_000)
    assert caught.value.kind == "encode"
    assert pool.call("add", 1) == 1


@pytest.mark.per_profile
def test_results_that_cannot_be_encoded(pool: Pool) -> None:
    for attempt in (
        lambda: pool.call(profile_tools.make_lock),
        lambda: pool.submit(profile_tools.make_lock).result(30),
    ):
        with pytest.raises(RemoteError, match=r"[lL]ock") as caught:
            attempt()
        assert caught.value.kind == "encode" and caught.value.type_name == "TypeError"
    assert pool.call("add", 1) == 1


def test_open_files_are_refused(pool: Pool) -> None:
    """Also in a closure, and not sent as a text that looks like one."""
    with open("/dev/null") as file:
        for attempt in (
            lambda: pool.submit(profile_tools.echo, file),
            lambda: pool.submit(profile_tools.echo, [lambda: 1, file]),
            lambda: pool.submit(lambda: file),
            lambda: list(pool.map(profile_tools.echo, [file])),
        ):
            with pytest.raises(BadArguments, match="TextIOWrapper"):
                attempt()
    with pytest.raises(RemoteError, match="TextIOWrapper") as caught:
        pool.call(open, "/dev/null")
    assert caught.value.kind == "encode"


def test_code_that_refers_to_the_standard_streams_travels(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", sys.__stdout__)
    monkeypatch.setattr(sys, "stderr", sys.__stderr__)
    out, error = sys.stdout, sys.stderr
    assert pool.call(lambda: out is sys.stdout and error is sys.stderr)


def test_results_that_cannot_be_read(pool: Pool) -> None:
    for attempt in (pool.call, lambda *args: pool.submit(*args).result(30)):
        with pytest.raises(RemoteError, match="not here") as caught:
            attempt("apply", profile_tools.Unreadable)
        assert isinstance(caught.value.__cause__, ImportError)
    assert pool.call("add", 1) == 1


def test_result_over_the_limit(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool(payload_max="1MB")
    with pytest.raises(RemoteError, match="payload_max") as caught:
        pool.call("apply", bytes, 2 * MB)
    assert caught.value.kind == "encode"
    assert pool.call("apply", bytes, 1000) == bytes(1000)
