"""Pickling, by value if plain pickle refuses (code above all). Imports cloudpickle only when it is needed."""

from __future__ import annotations

import copyreg
import io
import pickle
import sys
from collections.abc import Callable
from typing import Any, TypeVar

S = TypeVar("S", bound="Callable[[Any], Any] | None")

ONLY_INHERITED = "through inheritance"
"""Part of multiprocessing's error for pickling its locks, queues and pools."""
INSTEAD = (
    "workers are not children of this program: use one of a multiprocessing.Manager(), or a lock of"
    " multiprocessing.get_context('spawn') (in place of tqdm's process_map:"
    " tqdm(pool.map(fn, items), total=len(items)))"
)


def pass_descriptors() -> None:
    """Have connections of multiprocessing and sockets pickled as it does itself, by a descriptor that the reader
    fetches: a connection is else a bare number. Does nothing in a program without multiprocessing."""
    if "multiprocessing.process" not in sys.modules:
        return
    import socket
    from multiprocessing import connection, reduction

    if reduction.HAVE_SEND_HANDLE:
        copyreg.pickle(connection.Connection, connection.reduce_connection)  # type: ignore[attr-defined]
        copyreg.pickle(socket.socket, reduction._reduce_socket)  # type: ignore[attr-defined]


def dumps(value: Any, has_main: bool = True) -> bytes:
    """Plainly where that is enough, by value otherwise. `has_main`: the reader finds this program's `__main__`.

    Raises what the latter raises."""
    return pickled(value, has_main, lambda: None)[0]


def pickled(value: Any, has_main: bool, new_sink: Callable[[], S]) -> tuple[bytes, S]:
    """As `dumps`, with what has taken buffers out of the pickle: a `buffer_callback`, of which each try has its own."""
    try:
        sink = new_sink()
        body = pickle.dumps(value, 5, buffer_callback=sink)
        if has_main or b"__main__" not in body:
            return body, sink
    except Exception:
        """The value may go by value."""
    sink = new_sink()
    return dumps_by_value(value, sink, classes_by_name=has_main)[0], sink


def dumps_by_value(
    value: Any, buffer_callback: Callable[[Any], Any] | None, *, classes_by_name: bool
) -> tuple[bytes, bool]:
    """Pickles with lambdas, closures and functions of `__main__` by value, and its classes, unless workers find them.
    True: there was code among it.

    Raises what pickle raises.
    """
    from clutch._pickle.by_value import Pickler

    with io.BytesIO() as file:
        try:
            pickler = Pickler(file, protocol=5, buffer_callback=buffer_callback)
            pickler.classes_by_name = classes_by_name
            pickler.dump(value)
        except RuntimeError as error:
            if ONLY_INHERITED not in str(error):
                raise
            raise TypeError(f"{error}; {INSTEAD}") from error
        return file.getvalue(), pickler.has_code
