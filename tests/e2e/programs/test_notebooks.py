"""What a notebook shows of a pool, and of code that is in its cells."""

from __future__ import annotations

import linecache
import sys
import types
from typing import Any

import pytest

from clutch import Pool
from clutch._pool.notebook import with_source
from clutch.insights import Insights, SlowCall


def cell(name: str, source: str) -> dict[str, Any]:
    """Runs source as notebooks and prompts do: it is in `linecache`, and in no file."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(source, name, "exec"), space)
    return space


def test_the_lines_of_cells_are_in_tracebacks() -> None:
    source = "def fail():\n    inner()\n\ndef inner():\n    raise ValueError(5)\n"
    with Pool(1) as pool:
        error = pool.submit(cell("<cell 4>", source)["fail"]).exception(30)
    assert isinstance(error, ValueError)
    told = str(error.__cause__)
    assert 'File "<cell 4>", line 2, in fail\n    inner()\n  File "<cell 4>", line 5, in inner\n    raise' in told, told


def test_a_cell_has_the_name_that_the_notebook_gives_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def format_code_name(name: str) -> tuple[str, str] | None:
        return ("Cell", "In[4]") if name == "<cell 5>" else None

    compiler = types.SimpleNamespace(format_code_name=format_code_name)
    ipython = types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace(compile=compiler))
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    cell("<cell 5>", "x = 1\n")
    head, tail = "Traceback:\n", '  File "<other>", line 1, in g\n  File "a.py", line 7\n    y\nE: e\n'
    told = with_source(f'{head}  File "<cell 5>", line 1, in f\n{tail}')
    assert told == f"{head}  Cell In[4], line 1, in f\n    x = 1\n{tail}"


def test_a_pool_and_its_insights_are_tables() -> None:
    with Pool(1, name="shop") as pool:
        assert pool.submit(int, "7").result(30) == 7
        shown = pool._repr_html_()
        (worker,) = pool.stats()["workers"]
    assert "<caption>pool shop: ready, 1 of 1 workers ready, 0 queued, 1 done, 0 failed</caption>" in shown
    assert f"<td>{worker['pid']}</td><td>ready</td>" in shown
    insights = Insights("p", 1, 1.0, 2.0, 1.0, (SlowCall("f('<b>')", 0.5),))
    shown = insights._repr_html_()
    assert "<td>run</td><td>25.0%</td><td>1.000 s</td>" in shown and "f(&#x27;&lt;b&gt;&#x27;)" in shown
