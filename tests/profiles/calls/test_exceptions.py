"""Failures 30 and 31: whatever a tool raises is an outcome of its call, and its worker lives on."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import AsyncIterable, Callable, Iterator
from typing import Any

import profile_tools
import pytest

from clutch import Pool, RemoteError
from clutch.errors import RemoteTraceback

RAISERS = pytest.mark.parametrize("raiser", [profile_tools.raise_it, profile_tools.raise_it_async])


@pytest.fixture(autouse=True)
def every_worker_lives_on(pool: Pool) -> Iterator[None]:
    before = {worker["pid"] for worker in pool.stats()["workers"]}
    yield
    assert pool.submit("add", 1).result(30) == 1
    assert {worker["pid"] for worker in pool.stats()["workers"]} == before


@pytest.mark.per_profile
@RAISERS
def test_the_original_exception_with_its_remote_traceback(pool: Pool, raiser: Callable[..., Any]) -> None:
    with pytest.raises(LookupError) as caught:
        pool.call(raiser, LookupError("a", 7))
    assert caught.value.args == ("a", 7)
    cause = caught.value.__cause__
    assert isinstance(cause, RemoteTraceback)
    text = str(cause)
    assert f"in {raiser.__name__}" in text and "profile_tools.py" in text and "raise error" in text
    assert "/clutch/_worker/" not in text and "/asyncio/" not in text, "what led to the tool is left out"


@RAISERS
def test_through_a_future(pool: Pool, raiser: Callable[..., Any]) -> None:
    future = pool.submit(raiser, KeyError("k"))
    error = future.exception(30)
    assert type(error) is KeyError and error.args == ("k",)
    assert "raise error" in str(error.__cause__)
    with pytest.raises(KeyError):
        future.result()


def test_attributes_and_chains(pool: Pool) -> None:
    error = profile_tools.Detailed("text", detail={"a": [1]})
    with pytest.raises(profile_tools.Detailed) as caught:
        pool.call(profile_tools.raise_it, error)
    assert caught.value.detail == {"a": [1]}
    with pytest.raises(ValueError, match="second") as chained:
        pool.call(profile_tools.raise_from)
    text = str(chained.value.__cause__)
    assert "KeyError: 'first'" in text and "direct cause" in text


def test_exception_groups(pool: Pool) -> None:
    group = ExceptionGroup("several", [ValueError(1), TypeError(2)])
    with pytest.raises(ExceptionGroup) as caught:
        pool.call(profile_tools.raise_it, group)
    assert [type(error) for error in caught.value.exceptions] == [ValueError, TypeError]


def test_an_exception_class_of_a_function_is_the_callers_own(pool: Pool) -> None:
    class Local(Exception):
        def __init__(self, text: str) -> None:
            super().__init__(text)
            self.held = lambda: 7

    class Narrower(Local):
        pass

    for kind in (Local, Narrower):

        def raise_local(kind: type[Exception] = kind) -> None:
            raise kind("mine")

        for attempt in (lambda: pool.call(raise_local), lambda: list(pool.map(lambda _: raise_local(), [1]))):
            with pytest.raises(Local, match="mine") as caught:
                attempt()
            assert type(caught.value) is kind and caught.value.held() == 7
            assert "raise kind" in str(caught.value.__cause__)


def test_an_exception_class_that_only_the_worker_knows(pool: Pool) -> None:
    def raise_local() -> None:
        class Local(LookupError):
            pass

        raise Local("here only")

    with pytest.raises(LookupError, match="here only") as caught:
        pool.call(raise_local)
    assert type(caught.value).__name__ == "Local"
    assert "raise Local" in str(caught.value.__cause__)


def test_an_exception_of_a_module_needs_no_cloudpickle(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool(workers=1)
    with pytest.raises(LookupError):
        pool.call(profile_tools.raise_it, LookupError("plain"))
    assert pool.call(profile_tools.has_module, "json") is True
    assert pool.call(profile_tools.has_module, "cloudpickle") is False


@pytest.mark.per_profile
def test_failure_30_odd_init(pool: Pool) -> None:
    with pytest.raises(RemoteError, match="7: seven") as caught:
        pool.call(profile_tools.raise_odd)
    assert caught.value.kind == "raised"
    assert caught.value.type_name == "profile_tools.OddInit"
    assert "in raise_odd" in caught.value.remote_traceback
    assert "in raise_odd" in str(caught.value.__cause__)


def test_failure_30_unpicklable(pool: Pool) -> None:
    with pytest.raises(RemoteError, match="held") as caught:
        pool.call(profile_tools.raise_held)
    assert caught.value.kind == "raised" and caught.value.type_name == "profile_tools.HeldLock"
    assert "in raise_held" in caught.value.remote_traceback


def test_failure_30_half_a_character(pool: Pool) -> None:
    with pytest.raises(ValueError, match="no file b\udcfcro") as caught:
        pool.call(profile_tools.raise_with_half_a_character)
    assert r"ValueError: no file b\udcfcro" in str(caught.value.__cause__)


def test_failure_30_unprintable(pool: Pool) -> None:
    with pytest.raises(profile_tools.NoText) as caught:
        pool.call(profile_tools.raise_no_text)
    assert "in raise_no_text" in str(caught.value.__cause__)


def test_failure_30_cyclic(pool: Pool) -> None:
    with pytest.raises(Exception, match="round") as caught:
        pool.call(profile_tools.raise_cyclic)
    assert isinstance(caught.value, profile_tools.Cyclic | RemoteError)
    assert "in raise_cyclic" in str(caught.value.__cause__)


def test_failure_30_huge(pool: Pool) -> None:
    with pytest.raises((ValueError, RemoteError)) as caught:
        pool.call(profile_tools.raise_huge)
    assert "xxxx" in str(caught.value)


def test_failure_30_arguments_that_do_not_unpickle_leave_others_alone(pool: Pool) -> None:
    futures = [pool.submit("echo", profile_tools.Unreadable() if number % 3 == 0 else number) for number in range(60)]
    concurrent.futures.wait(futures, timeout=30)
    for number, future in enumerate(futures):
        assert (future.exception() is None) == (number % 3 != 0)
        assert number % 3 == 0 or future.result() == number


@pytest.mark.per_profile
@RAISERS
@pytest.mark.parametrize(
    "error",
    [profile_tools.Quit("bye"), SystemExit(3), SystemExit("text"), KeyboardInterrupt("k"), GeneratorExit("g")],
    ids=lambda error: type(error).__name__,
)
def test_failure_31_not_an_exception(pool: Pool, raiser: Callable[..., Any], error: BaseException) -> None:
    for attempt in (lambda: pool.call(raiser, error), lambda: pool.submit(raiser, error).result(30)):
        with pytest.raises(type(error)) as caught:
            attempt()
        assert caught.value.args == error.args
        assert isinstance(caught.value.__cause__, RemoteTraceback)


@pytest.mark.per_profile
@pytest.mark.parametrize("raiser", [profile_tools.raise_in_stream, profile_tools.raise_in_stream_async])
@pytest.mark.parametrize("error", [profile_tools.Quit("bye"), SystemExit(3), KeyboardInterrupt("k")], ids=repr)
def test_failure_31_not_an_exception_in_a_stream(pool: Pool, raiser: Callable[..., Any], error: BaseException) -> None:
    stream = pool.stream(raiser, error)
    assert next(stream) == 1
    with pytest.raises(type(error)) as caught:
        next(stream)
    assert caught.value.args == error.args


@pytest.mark.per_profile
@RAISERS
@pytest.mark.parametrize("error", [profile_tools.Quit("bye"), SystemExit(3), KeyboardInterrupt("k")], ids=repr)
def test_failure_31_not_an_exception_in_a_batch(pool: Pool, raiser: Callable[..., Any], error: BaseException) -> None:
    results = pool.map(raiser, [error, ValueError("second")], chunksize=2)
    with pytest.raises(type(error)) as caught:
        next(results)
    assert caught.value.args == error.args


@pytest.mark.per_profile
def test_failure_31_the_ways_of_exiting(pool: Pool) -> None:
    with pytest.raises(SystemExit) as caught:
        pool.call(profile_tools.exit_with, 0)
    assert caught.value.code == 0
    with pytest.raises(KeyboardInterrupt):
        pool.call(profile_tools.interrupt)
    future = pool.submit(profile_tools.exit_with, "why")
    assert isinstance(future.exception(30), SystemExit)


@pytest.mark.per_profile
def test_failure_31_cancelled_inside(pool: Pool) -> None:
    for attempt in (
        lambda: pool.call(profile_tools.cancel_itself),
        lambda: pool.call(profile_tools.raise_it, asyncio.CancelledError("c")),
        lambda: pool.submit(profile_tools.cancel_itself).result(30),
    ):
        with pytest.raises(asyncio.CancelledError):
            attempt()


@pytest.mark.per_profile
def test_stop_iteration(pool: Pool) -> None:
    with pytest.raises(StopIteration) as caught:
        pool.call(profile_tools.raise_it, StopIteration(7))
    assert caught.value.value == 7
    with pytest.raises((StopAsyncIteration, RuntimeError)):
        pool.call(profile_tools.raise_it_async, StopAsyncIteration())


@pytest.mark.per_profile
def test_recursion_without_end(pool: Pool) -> None:
    def endless(depth: int) -> int:
        return endless(depth + 1)

    with pytest.raises(RecursionError):
        pool.call(endless, 0)


def test_errors_of_clutch_raised_by_a_tool_stay_what_they_are(pool: Pool) -> None:
    from clutch import DeadlineExceeded, Overloaded

    with pytest.raises(Overloaded, match="mine") as caught:
        pool.call(profile_tools.raise_it, Overloaded("mine", pool="other", retry_after=2.5))
    assert (caught.value.pool, caught.value.retry_after) == ("other", 2.5)
    with pytest.raises(DeadlineExceeded, match="theirs"):
        pool.call(profile_tools.raise_it_async, DeadlineExceeded("theirs", where="running"))


@pytest.mark.per_profile
@pytest.mark.parametrize("end", [StopIteration("x"), StopAsyncIteration("x")], ids=lambda end: type(end).__name__)
def test_what_an_iterator_would_end_with_is_an_error_there(pool: Pool, end: Exception) -> None:
    with pytest.raises(type(end)):
        pool.call(profile_tools.raise_it, end)
    with pytest.raises(type(end)):
        pool.submit(profile_tools.raise_it, end).result()
    mapped = pool.map(profile_tools.raise_it, [end, end])
    raised = [raised_by(lambda: next(mapped)), raised_by(lambda: next(mapped))]
    assert list(mapped) == []
    raised.append(raised_by(lambda: list(pool.stream(profile_tools.raise_it, end))))
    raised.append(raised_by(lambda: asyncio.run(all_of(pool.stream(profile_tools.raise_it, end)))))
    for error in raised:
        assert type(error) is RuntimeError and str(error) == f"generator raised {type(end).__name__}"
        assert type(error.__cause__) is type(end) and error.__cause__.args == ("x",)


def raised_by(use: Callable[[], object]) -> BaseException:
    with pytest.raises(BaseException) as caught:
        use()
    return caught.value


async def all_of(values: AsyncIterable[Any]) -> list[Any]:
    return [value async for value in values]
