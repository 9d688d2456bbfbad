"""Values of the program that its functions use: what workers compare with theirs (_worker/values.py)."""

from __future__ import annotations

import dis
import itertools
import os
import sys
import types
from collections.abc import Iterator
from typing import NamedTuple

from clutch._worker.leftovers import is_users
from clutch._worker.values import Digests, digest_of

MODULES_MAX = 200
SETTERS = (dis.opmap["STORE_GLOBAL"], dis.opmap["DELETE_GLOBAL"])


class Names(NamedTuple):
    """What functions of a module use."""

    read: set[str]
    """Globals, and attributes: those of other modules are among them."""
    written: set[str]
    """Globals that they set: these are a worker's own."""


def values_of_program(has_main: bool) -> Digests:
    """`has_main`: workers find this program's `__main__`."""
    modules = dict(itertools.islice(own_modules(has_main), MODULES_MAX))
    uses = {name: names_in(module) for name, module in modules.items()}
    read = set[str]().union(*(names.read for names in uses.values()))
    found = {}
    for name, module in modules.items():
        names = [used for used in vars(module) if used in read and used not in uses[name].written]
        digests = {used: digest_of(vars(module)[used]) for used in names if not used.startswith("__")}
        if kept := {used: digest for used, digest in digests.items() if digest is not None}:
            found[name] = kept
    return found


def own_modules(has_main: bool) -> Iterator[tuple[str, types.ModuleType]]:
    for name, module in list(sys.modules.items()):
        file = vars(module).get("__file__") if type(module) is types.ModuleType else None
        if name == "__mp_main__" or (name == "__main__" and not has_main):
            continue
        if type(file) is str and is_users(os.path.abspath(file)):
            yield name, module


def names_in(module: types.ModuleType) -> Names:
    read: set[str] = set()
    written: set[str] = set()
    codes = list(codes_of(module))
    while codes:
        code = codes.pop()
        codes += [one for one in code.co_consts if isinstance(one, types.CodeType)]
        read.update(code.co_names)
        if any(op in code.co_code[::2] for op in SETTERS):
            written.update(one.argval for one in dis.get_instructions(code) if one.opcode in SETTERS)
    return Names(read, written)


def codes_of(module: types.ModuleType) -> Iterator[types.CodeType]:
    for value in list(vars(module).values()):
        # By its real type: what poses as something else may raise when it is looked at.
        is_own_class = type(value) is type and vars(value).get("__module__") == module.__name__
        for one in list(vars(value).values()) if is_own_class else [value]:
            function = one.__func__ if type(one) in (staticmethod, classmethod) else one
            if type(function) is types.FunctionType and function.__globals__ is vars(module):
                yield function.__code__
