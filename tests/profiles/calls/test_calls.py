"""Calls: what may be called, how, and what the caller is told when it may not."""

from __future__ import annotations

import functools
import operator
import os
from collections.abc import Callable

import profile_tools
import pytest

from clutch import BadArguments, NoSuchTool, Pool
from support.rendezvous import Rendezvous

BOTH_KINDS = pytest.mark.parametrize("name", ["add", "add_async"])


@pytest.mark.per_profile
@BOTH_KINDS
def test_call_by_name(pool: Pool, name: str) -> None:
    assert pool.call(name, 1) == 1
    assert pool.call(name, 1, 2) == 3
    assert pool.call(name, 1, b=2, c=3) == 6
    assert pool.call(name, a="a", c="c", b="b") == "abc"


@pytest.mark.per_profile
@BOTH_KINDS
def test_call_by_function(pool: Pool, name: str) -> None:
    function = getattr(profile_tools, name)
    assert pool.call(function, 1) == 1
    assert pool.call(function, 1, 2, c=3) == 6


@pytest.mark.per_profile
@BOTH_KINDS
def test_submit(pool: Pool, name: str) -> None:
    by_name, by_function = pool.submit(name, 1, 2), pool.submit(getattr(profile_tools, name), 3, c=4)
    assert (by_name.result(30), by_function.result(30)) == (3, 7)
    assert by_name.done() and not by_name.running() and not by_name.cancelled()
    assert by_name.exception() is None
    assert by_name.result() == 3, "a result can be asked for again"


@pytest.mark.per_profile
def test_many_at_once_come_back_to_their_own_callers(pool: Pool) -> None:
    futures = [pool.submit("add", number, number) for number in range(500)]
    assert [future.result(30) for future in futures] == [2 * number for number in range(500)]


def test_arguments_of_every_form(pool: Pool) -> None:
    assert pool.call("everything") == ((), {})
    assert pool.call("everything", 1, [2], x={"y": 3}) == ((1, [2]), {"x": {"y": 3}})
    assert pool.call(profile_tools.everything, function=1, name=2, self=3, args=4, kwargs=5) == (
        (),
        {"function": 1, "name": 2, "self": 3, "args": 4, "kwargs": 5},
    )
    assert pool.call("everything", **{"not a name": 1, "": 2}) == ((), {"not a name": 1, "": 2})


def test_options_do_not_collide_with_arguments(pool: Pool) -> None:
    calls = pool.options(deadline=30.0, priority=3, retry=1)
    assert calls.call("everything", deadline=1, priority=2, retry=3, block=4) == (
        (),
        {"deadline": 1, "priority": 2, "retry": 3, "block": 4},
    )
    assert calls.submit("everything", deadline=1).result(30) == ((), {"deadline": 1})
    assert list(calls.stream("count", n=2)) == [0, 1]


@pytest.mark.per_profile
def test_it_runs_elsewhere(pool: Pool) -> None:
    assert pool.call("pid") != os.getpid()
    assert pool.call(profile_tools.pid) in {worker["pid"] for worker in pool.stats()["workers"]}


@pytest.mark.per_profile
def test_lambda(pool: Pool) -> None:
    assert pool.call(lambda a, b: a * b, 6, b=7) == 42
    assert pool.submit(lambda: "later").result(30) == "later"


def test_closure(pool: Pool) -> None:
    shift = 10

    def shifted(value: int) -> int:
        return value + shift

    assert pool.call(shifted, 1) == 11
    shift = 20
    assert pool.call(shifted, 1) == 21, "a closure travels as it is at that moment"


@pytest.mark.per_profile
def test_local_coroutine_function(pool: Pool) -> None:
    async def local(value: int) -> int:
        return value + 1

    assert pool.call(local, 1) == 2


def test_callables_that_are_no_functions(pool: Pool) -> None:
    assert pool.call(functools.partial(profile_tools.add, 1, c=2), 3) == 6
    assert pool.call(operator.itemgetter(1), "abc") == "b"
    assert pool.call("{}-{}".format, 1, 2) == "1-2"
    assert pool.call(len, [1, 2]) == 2
    assert pool.call(int, "7") == 7
    assert pool.call([3, 4].count, 3) == 1


def test_functions_as_arguments(pool: Pool) -> None:
    assert pool.call("apply", profile_tools.add, 1, 2) == 3
    assert pool.call("apply", lambda value: value + 1, 1) == 2


@pytest.mark.per_profile
def test_class_target(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool("profile_tools:Counter")
    pool.wait_ready(timeout=60)
    counts: dict[int, list[int]] = {}
    for _ in range(10):
        pid, count = pool.call("increment")
        counts.setdefault(pid, []).append(count)
    for of_worker in counts.values():
        # 100: @on_start of the instance.
        assert of_worker == list(range(101, 101 + len(of_worker))), "each worker has an instance of its own"
    pid, count = pool.call("increment_async", by=1000)
    assert count == 1000 + (counts[pid][-1] if pid in counts else 100)
    assert list(pool.stream("numbers", 3)) == [0, 1, 2]
    made_in, runs_in = pool.call("where_made")
    assert made_in == runs_in


def test_tools_are_listed(pool: Pool) -> None:
    tools = pool.stats()["image"]["tools"] if pool.name != "spawn" else None
    if tools is not None:
        assert {"add", "add_async", "count"} <= set(tools)
        assert "not_a_tool" not in tools and "meet" not in tools


@pytest.mark.parametrize("name", ["add", "add_async", "count", "count_async"])
@pytest.mark.parametrize(
    ("args", "kwargs", "word"),
    [((), {}, "missing"), ((1,), {"nope": 2}, "nope"), ((1, 2, 3, 4), {}, "positional")],
    ids=["missing", "unknown", "too many"],
)
def test_wrong_arguments_by_name(
    pool: Pool, name: str, args: tuple[int, ...], kwargs: dict[str, int], word: str
) -> None:
    with pytest.raises(BadArguments, match=word) as caught:
        if name.startswith("count"):
            next(iter(pool.stream(name, *args, **kwargs)))
        else:
            pool.call(name, *args, **kwargs)
    assert name in str(caught.value)
    assert pool.call("add", 1) == 1


@pytest.mark.per_profile
def test_wrong_arguments_of_a_function_are_its_type_error(pool: Pool) -> None:
    with pytest.raises(TypeError, match="missing"):
        pool.call(profile_tools.add)
    with pytest.raises(TypeError, match="unsupported operand"):
        pool.call("add", 1, "b")


def test_type_error_inside_a_tool_is_not_about_its_arguments(pool: Pool) -> None:
    with pytest.raises(TypeError, match="unsupported operand"):
        pool.call("add_async", 1, "b")


@pytest.mark.per_profile
@pytest.mark.parametrize("name", ["ad", "not_a_tool", "", "Counter", "os", "__class__", "x" * 1000])
def test_no_such_tool(pool: Pool, name: str) -> None:
    with pytest.raises(NoSuchTool) as caught:
        pool.call(name)
    if name == "ad":
        assert "'ad'" in str(caught.value) and "add" in str(caught.value), "names the nearest"
    with pytest.raises(NoSuchTool):
        pool.submit(name).result(30)
    with pytest.raises(NoSuchTool):
        list(pool.stream(name))


def test_pool_without_target_runs_functions_only(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool(None)
    assert pool.call(profile_tools.add, 1, 2) == 3
    with pytest.raises(NoSuchTool, match="no target"):
        pool.call("add", 1)


@pytest.mark.parametrize("thing", [None, 7, b"add", ["add"]])
def test_what_is_no_function(pool: Pool, thing: object) -> None:
    with pytest.raises(BadArguments, match="callable"):
        pool.call(thing)  # type: ignore[arg-type]
    with pytest.raises(BadArguments, match="callable"):
        pool.submit(thing)  # type: ignore[arg-type]


def test_arguments_that_cannot_be_sent(pool: Pool) -> None:
    lock = profile_tools.make_lock()
    with pytest.raises(BadArguments, match=r"echo|lock") as caught:
        pool.call("echo", lock)
    assert isinstance(caught.value.__cause__, TypeError)
    with pytest.raises(BadArguments, match="lock"):
        pool.submit(profile_tools.echo, [lock])
    with pytest.raises(BadArguments, match="lock"):
        pool.call(lambda: lock)
    assert pool.call("add", 1) == 1


@pytest.mark.per_profile
def test_arguments_that_cannot_be_read(pool: Pool) -> None:
    with pytest.raises(BadArguments, match="not here"):
        pool.call("echo", profile_tools.Unreadable())
    with pytest.raises(BadArguments, match="not here"):
        pool.submit(profile_tools.echo, [profile_tools.Unreadable()]).result(30)
    assert pool.call("add", 1) == 1


@pytest.mark.per_profile
def test_a_call_of_a_generator_says_what_to_use(pool: Pool, rendezvous: Rendezvous) -> None:
    for name in ("count", "count_async"):
        with pytest.raises(BadArguments, match="stream"):
            pool.call(name, 100_000)
        with pytest.raises(BadArguments, match="stream"):
            pool.submit(name, 3).result(30)
    assert pool.call("add", 1) == 1
    # Nothing of it runs on: every slot is free.
    futures = [pool.submit("visit", rendezvous.port) for _ in range(pool.stats()["slots"])]
    for guest in rendezvous.guests(len(futures)):
        guest.let_go()
    assert [future.result(30) for future in futures] == [""] * len(futures)


def test_arguments_over_the_limit(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool(payload_max="1MB")
    with pytest.raises(BadArguments, match="payload_max"):
        pool.call("kind_of", bytes(2 << 20))
    assert pool.call("kind_of", bytes(1 << 19)) == "bytes"
