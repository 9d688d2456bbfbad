"""Functions of a program's `__main__` that its workers do not have, though they run its file: those below the guard of
`__main__`, and those of cells, which are bodies of functions in the file of a marimo notebook. They go by value."""

from __future__ import annotations

import ast
import functools
import os
import pickle
import sys
import types
from collections.abc import Iterator
from typing import Any

GUARDED, IN_A_CELL = "guarded", "in a cell"
DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef


class Carried:
    """Stands for a function on its way to a worker, where the function itself comes out."""

    def __init__(self, function: Any, classes_by_name: bool) -> None:
        self._function, self._classes_by_name = function, classes_by_name
        self.__name__, self.__qualname__, self.__module__ = function.__name__, function.__qualname__, "__main__"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __reduce__(self) -> Any:
        from clutch._pickle import dumps_by_value

        body, _ = dumps_by_value(self._function, None, classes_by_name=self._classes_by_name)
        return pickle.loads, (body,)


def carried(function: Any) -> Any:
    """Return what is to be sent in place of a function of `__main__` that workers lack, or the function."""
    is_cached = type(function) is functools._lru_cache_wrapper
    inner = function.__wrapped__ if is_cached else function
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    if type(inner) is not types.FunctionType or file is None:
        return function
    code = inner.__code__
    if os.path.abspath(code.co_filename) != os.path.abspath(file):
        return function
    where = hidden_in(os.path.abspath(file)).get((inner.__qualname__, code.co_firstlineno))
    # The classes above a guard are a worker's, too; a cell's are nobody's but the program's.
    return function if where is None else Carried(function, where == GUARDED and not is_cached)


@functools.cache
def hidden_in(file: str) -> dict[tuple[str, int], str]:
    """Where functions of the file are hidden, by their names and first lines."""
    try:
        with open(file, "rb") as source:
            tree = ast.parse(source.read())
    except (OSError, ValueError, SyntaxError):
        return {}
    return {(node.name, first_line(node)): where for node, where in hidden_functions(tree.body, None)}


def hidden_functions(body: list[ast.stmt], where: str | None) -> Iterator[tuple[DEFINITIONS, str]]:
    """Yield definitions of functions that running the file as another module does not make global."""
    for node in body:
        if isinstance(node, DEFINITIONS):
            if where is not None:
                yield node, where
            yield from hidden_functions(node.body, where or IN_A_CELL)
        elif isinstance(node, ast.If) and is_guard(node.test):
            yield from hidden_functions(node.body, where or GUARDED)
            yield from hidden_functions(node.orelse, where)
        elif not isinstance(node, ast.ClassDef):
            for name in ("body", "orelse", "finalbody"):
                yield from hidden_functions(getattr(node, name, []), where)


def is_guard(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and {"'__main__'", "__name__"} <= {
        ast.unparse(side) for side in (test.left, *test.comparators)
    }


def first_line(node: DEFINITIONS) -> int:
    """As its code has it: that of its first decorator."""
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
