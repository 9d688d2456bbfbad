"""A dispatcher on one Python, pools on another: functions by name only."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import harmful_tools
import pytest

from clutch import BadArguments, NoSuchTool, Pool
from support.clutch_process import PYTHON_PATH
from support.rendezvous import Rendezvous

ROOT = Path(__file__).parents[3]
PYTHON = os.environ.get("CLUTCH_TEST_FT_PYTHON") or str(ROOT / ".venv-ft/bin/python")
pytestmark = [
    pytest.mark.skipif(not os.path.exists(PYTHON), reason="no free-threaded interpreter: make free-threaded"),
    pytest.mark.timeout(120),
]


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool("harmful_tools", name="other", profile="thread", threads=3, python=PYTHON) as pool:
        pool.wait_ready(timeout=60)
        yield pool


def test_it_runs_there_without_the_gil(pool: Pool) -> None:
    image = pool.stats()["image"]
    found = subprocess.run([PYTHON, "-c", "import sys; print(sys.version.split()[0])"], capture_output=True, text=True)
    assert image["python"] == found.stdout.strip() != sys.version.split()[0]
    assert image["gil"] is False
    assert pool.stats()["target"] == 1, "one worker is the default where threads run in parallel"


def test_by_name(pool: Pool, rendezvous: Rendezvous) -> None:
    for value in (1, 2**53 + 1, 2**100, None, "ü", b"\0", (1, "a"), [1], {"a": {"b": 2.5}}, bytes(1 << 20)):
        assert pool.call("echo", value) == value
    futures = [pool.submit("visit", rendezvous.port) for _ in range(3)]
    for guest in rendezvous.guests(3):
        guest.let_go("w")
    assert [future.result(30) for future in futures] == ["w"] * 3
    assert list(pool.map("echo", range(100))) == list(range(100))
    with pytest.raises(NoSuchTool):
        pool.call("nope")


def test_exceptions_come_back(pool: Pool, rendezvous: Rendezvous) -> None:
    with pytest.raises(OSError) as caught:
        pool.call("visit", 1)
    assert "in visit" in str(caught.value.__cause__)


def test_an_importable_function_goes_by_its_name(pool: Pool) -> None:
    assert pool.call(harmful_tools.echo, 1) == 1
    assert pool.call(len, [1, 2]) == 2


def test_code_by_value_is_refused(pool: Pool) -> None:
    for attempt in (
        lambda: pool.call(lambda: 1),
        lambda: pool.submit(lambda: 1).result(30),
        lambda: pool.call("echo", lambda: 1),
        lambda: list(pool.stream(lambda: iter([1]))),
        lambda: list(pool.map(lambda value: value, [1])),
    ):
        with pytest.raises(BadArguments, match=r"Python 3\.\d+") as caught:
            attempt()
        assert "by value" in str(caught.value)
    assert pool.call("echo", 1) == 1


NO_FILE = """
import os.path, sys
from clutch import Pool

class Value:
    pass

with Pool(workers=1, profile="thread", python=sys.argv[1]) as pool:
    for plain in (["__main__"], {"__main__": None}, {type(None), "__main__"}):
        print(pool.call(len, plain))
    print(*pool.map(os.path.basename, ["a/__main__.py", "b"]))
    for code in (Value, [Value()], [lambda: None]):
        try:
            pool.call(repr, code)
        except Exception as error:
            print("by value" in str(error))
"""


def test_values_of_a_program_without_a_file() -> None:
    """A text that is the name of its module is no code."""
    done = subprocess.run([sys.executable, "-c", NO_FILE, PYTHON], capture_output=True, text=True)
    assert done.stdout == "1\n1\n2\n__main__.py b\nTrue\nTrue\nTrue\n", done.stderr


FOREIGN = """
import sys
from clutch import Pool, RemoteError, WorkerLost

def raised(call):
    try:
        return f"no error: {call()!r}"
    except (RemoteError, WorkerLost) as error:
        return "code cannot be sent between Python versions" in str(error) or error.type_name

def make(**more):
    return Pool("harmful_tools", workers=1, profile="thread", python=sys.argv[1], **more)

with make() as pool:
    print(raised(lambda: pool.call("give_code")), raised(lambda: list(pool.stream("stream_code"))))
    print(raised(lambda: list(pool.map("echo_or_code", range(3)))), raised(lambda: pool.call("raise_with_code")))
    print(pool.call("echo", 1))
with make(initializer=lambda: [number for number in range(3)]) as pool:
    print(raised(lambda: pool.call("echo", 1)))
"""


def test_code_from_there_is_refused(tmp_path: Path) -> None:
    """To run it, or only to look at an exception with it, would end this process."""
    command = [sys.executable, "-c", FOREIGN, PYTHON]
    environment = {**os.environ, "PYTHONPATH": PYTHON_PATH}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout == "True True\nTrue harmful_tools.raise_with_code.<locals>.Odd\n1\nTrue\n", done.stderr


def test_code_by_value_of_a_pool_that_is_not_up_yet() -> None:
    with Pool("harmful_tools", profile="thread", python=PYTHON) as pool, pytest.raises(BadArguments, match="by value"):
        pool.call(lambda: 1)
