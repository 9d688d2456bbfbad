"""Values at the top of the program's own modules, compared with a worker's: what differs is told once, by name.

Workers import these modules anew. What the program has set in them since, a worker does not know.
"""

from __future__ import annotations

import contextlib
import sys
import zlib
from typing import TYPE_CHECKING, Any

from clutch import _core

if TYPE_CHECKING:
    import mmap

Digests = dict[str, dict[str, int]]
"""Of values, by module and name."""
PLAIN = (bool, int, float, complex, str, bytes, type(None))
GROUPS = (tuple, list, set, frozenset, dict)
SIZED = (*GROUPS, str, bytes)
ITEMS_MAX = 1000
"""Of a value that is compared, with those in it; also the longest text."""
BITS_MAX = 1 << 10
NAMES_SHOWN = 5


def tell_differing(values: Digests, told: mmap.mmap) -> None:
    """Say which values of the program this worker has otherwise. `told`: the byte that says whether one has looked."""
    if _core.test_and_set(told):
        return
    names = differing(values)
    if not names:
        return
    shown = ", ".join(names[:NAMES_SHOWN])
    if len(names) > NAMES_SHOWN:
        shown += f" and {len(names) - NAMES_SHOWN} more"
    print(
        f"warning: workers have other values than this program in {shown}: they import its modules anew, and run "
        "nothing below its `__main__` guard. Set these at the top of their module, pass them as arguments, or set "
        "them by Pool(initializer=…)",
        file=sys.stderr,
        flush=True,
    )


def differing(values: Digests) -> list[str]:
    """Names whose values are others here, of modules that are here."""
    found = []
    for name, digests in values.items():
        module = sys.modules.get("__mp_main__" if name == "__main__" else name)
        known = vars(module) if module is not None else {}
        others = [used for used, digest in digests.items() if used in known and differs(known[used], digest)]
        if others:
            fixed = fixed_in(known.get("__file__"))
            prefix = "" if name == "__main__" else f"{name}."
            found += [prefix + used for used in others if used in fixed]
    return found


def fixed_in(file: str | None) -> set[str]:
    """Names that the top of a module sets to what its text says. What is computed may differ in each process (a time,
    a process id, the order of a set), and what is empty at first is a cache or the like: no change of the program's.
    """
    import ast

    fixed: set[str] = set()
    with contextlib.suppress(OSError, SyntaxError, ValueError, MemoryError, RecursionError):
        with open(file or "", "rb") as source:
            top = ast.parse(source.read()).body
        for statement in top:
            targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
            names = {one.id for target in targets if target for one in ast.walk(target) if isinstance(one, ast.Name)}
            fixed = fixed | names if is_literal(getattr(statement, "value", None)) else fixed - names
    return fixed


def is_literal(value: Any) -> bool:
    import ast

    try:
        read = ast.literal_eval(value)
    except (TypeError, ValueError):
        return False
    return bool(read) or not isinstance(read, GROUPS)


def differs(value: Any, digest: int) -> bool:
    here = digest_of(value)
    return here is not None and here != digest


def digest_of(value: Any) -> int | None:
    """The digest of a value that is plain or made of such; None of any other, and of large ones. Runs nobody's code."""
    digest, left, count = 0, [value], 0
    while left:
        one, count = left.pop(), count + 1
        kind = type(one)
        if (
            count > ITEMS_MAX
            or (kind in SIZED and len(one) > ITEMS_MAX)
            or (kind is int and one.bit_length() > BITS_MAX)
        ):
            return None
        if kind in PLAIN:
            text = repr(one)
        elif kind in GROUPS:
            text = str(len(one))
            items = list(one.items()) if kind is dict else list(one)
            if kind in (set, frozenset):
                if not all(type(item) in PLAIN for item in items):
                    return None
                items.sort(key=repr)
            left += items
        else:
            return None
        digest = zlib.crc32(f"{kind.__name__} {text};".encode(errors="replace"), digest)
    return digest
