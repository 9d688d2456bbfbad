"""Failure 57, in workers: code that forks its worker. The copy ends where the call ends that made it; the worker, its
caller and the pool notice nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import forking_tools
import pytest

from clutch import Pool
from clutch.testing import Processes
from support.shapes import Shape
from support.stderr import Stderr

pytestmark = [pytest.mark.per_profile, pytest.mark.timeout(120)]

BOTH_KINDS = pytest.mark.parametrize("suffix", ["", "_async"])


@pytest.fixture(scope="module")
def pool(shape: Shape) -> Iterator[Pool]:
    pool = Pool("forking_tools", name=shape.name, **shape.options)
    pool.wait_ready(timeout=60)
    yield pool
    pool.terminate_workers()
    pool.shutdown()


@pytest.fixture(autouse=True)
def unharmed(pool: Pool) -> Iterator[None]:
    """After each test: the same workers as before answer, the right callers, and nobody else does."""
    workers = {worker["pid"] for worker in pool.stats()["workers"]}
    yield
    sums = [pool.submit("add", number, number) for number in range(1000)]
    assert [future.result(30) for future in sums] == [2 * number for number in range(1000)]
    assert {pool.submit("pid").result(30) for _ in range(20)} <= workers
    assert {worker["pid"] for worker in pool.stats()["workers"]} == workers


def wait_gone(folder: Path) -> None:
    """The child has come to its end, and has ended."""
    with Processes([int((folder / "pid").read_text())]) as child:
        child.wait_ended()
    assert (folder / "child").exists()


@pytest.mark.parametrize("name", ["returns", "returns_async"])
def test_failure_57_a_copy_ends_where_its_call_ends(pool: Pool, tmp_path: Path, name: str) -> None:
    assert pool.call(name, str(tmp_path)) == "parent"
    wait_gone(tmp_path)


def test_failure_57_a_copy_of_a_loop_takes_no_events(pool: Pool, tmp_path: Path) -> None:
    """It ends where it would wait: what it would wait for comes to the worker."""
    workers = {worker["pid"] for worker in pool.stats()["workers"]}
    for nr in range(5):
        folder = tmp_path / str(nr)
        folder.mkdir()
        neighbours = [pool.submit("waits_often") for _ in range(6)]
        assert pool.call("returns_after_wait", str(folder)) == "parent"
        wait_gone(folder)
        assert {neighbour.result(30) for neighbour in neighbours} <= workers


@BOTH_KINDS
def test_failure_57_a_stream_has_the_workers_values_only(pool: Pool, tmp_path: Path, suffix: str) -> None:
    assert list(pool.stream(f"values{suffix}", str(tmp_path))) == ["parent"] * 30
    wait_gone(tmp_path)


@BOTH_KINDS
@pytest.mark.parametrize("chunksize", [1, 10])
def test_failure_57_each_item_of_a_batch_runs_once(pool: Pool, suffix: str, chunksize: int) -> None:
    workers = {worker["pid"] for worker in pool.stats()["workers"]}
    function = forking_tools.item_async if suffix else forking_tools.item
    answers = list(pool.map(function, range(30), chunksize=chunksize))
    assert [number for number, _ in answers] == list(range(30))
    assert {pid for _, pid in answers} <= workers


@pytest.mark.parametrize(
    ("how", "code", "last"),
    [
        ("returns", 0, ""),
        ("_exit", 7, ""),
        ("exit", 0, ""),
        ("exit 5", 5, ""),
        ("exit None", 0, ""),
        ("exit text", 1, "a last word"),
        ("raises", 1, "ValueError: in the child"),
    ],
)
def test_failure_57_a_copy_has_the_exit_code_of_a_script(pool: Pool, how: str, code: int, last: str) -> None:
    with Stderr() as stderr:
        assert pool.call("end_of_child", how) == code
        stderr.wait(last)


def test_failure_57_children_of_libraries_go_on_as_ever(pool: Pool) -> None:
    for _ in range(3):
        assert pool.call("uses_children") == ["1\n", "here"]


def test_failure_57_a_multiprocessing_pool_in_a_call(pool: Pool, shape: Shape) -> None:
    if shape.name == "greenlet":
        pytest.skip("multiprocessing.Pool hangs where gevent has patched it")
    assert pool.call("uses_a_pool") == [1, 2, 3]


STARTS = {
    "an import": "os.fork()\n",
    "an initializer": "",
    "on_start": "@clutch.on_start\ndef start(): os.fork()\n",
}


@pytest.mark.parametrize("where", STARTS)
@pytest.mark.parametrize("preload", [True, False])
def test_failure_57_a_copy_made_at_the_start_ends_there(
    make_pool: Callable[..., Pool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, preload: bool
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    text = "import clutch, os\n@clutch.tool\ndef double(value): return 2 * value\n" + STARTS[where]
    (tmp_path / "forks_at_start.py").write_text(text)
    options = {"initializer": os.fork} if where == "an initializer" else {}
    pool = make_pool("forks_at_start", preload=preload, **options)
    pool.wait_ready(timeout=60)
    assert [pool.submit("double", value).result(30) for value in range(300)] == [2 * value for value in range(300)]
    assert pool.stats()["restarts"] == 0
    sys.modules.pop("forks_at_start", None)
