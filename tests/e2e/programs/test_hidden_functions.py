"""Functions of a script that its workers do not have, though they run it: they go by value."""

from __future__ import annotations

from pathlib import Path

import pytest

from clutch._pickle.hidden import GUARDED, IN_A_CELL, hidden_in
from support.script_process import run_script

GUARDED_PROGRAM = """
import asyncio, functools
from clutch import Pool

class Point:
    def __init__(self, x):
        self.x = x

if __name__ == "__main__":
    factor = 3

    def scaled(x):
        return Point(factor * x)

    @functools.cache
    def cached(x):
        return factor + x

    async def later(x):
        await asyncio.sleep(0)
        return factor * x

    with Pool(2) as pool:
        assert [point.x for point in pool.map(scaled, range(4))] == [0, 3, 6, 9]
        assert type(pool.call(scaled, 1)) is Point, "a class above the guard is the worker's own"
        assert pool.call(cached, 1) == 4
        assert list(pool.map(later, range(3))) == [0, 3, 6]
"""
# As marimo runs a cell: its body, with its own lines, in the namespace of `__main__`.
CELLS = """
from clutch import Pool

def cell():
    class Point:
        def __init__(self, x):
            self.x = x

    def doubled(x):
        return Point(2 * x)

if __name__ == "__main__":
    import ast
    (found,) = [node for node in ast.parse(open(__file__).read()).body if getattr(node, "name", "") == "cell"]
    exec(compile(ast.Module(found.body, []), __file__, "exec"), globals())
    with Pool(2) as pool:
        assert [point.x for point in pool.map(doubled, range(3))] == [0, 2, 4]
"""


@pytest.mark.parametrize("program", [GUARDED_PROGRAM, CELLS], ids=["below the guard", "in a cell"])
def test_a_function_that_workers_lack_goes_by_value(tmp_path: Path, program: str) -> None:
    done = run_script(tmp_path, program)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


def test_where_functions_are_hidden(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text(
        "def seen():\n    def inner(): ...\n"
        "try:\n    def tried(): ...\nfinally:\n    pass\n"
        "if '__main__' == __name__:\n    @seen\n    def guarded(): ...\nelse:\n    def imported(): ...\n"
        "class Kind:\n    def method(self): ...\n"
    )
    assert hidden_in(str(file)) == {("inner", 2): IN_A_CELL, ("guarded", 8): GUARDED}
    assert hidden_in(str(tmp_path / "missing.py")) == {}
