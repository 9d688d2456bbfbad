"""`_core.test_and_set`: one of many is the first, across threads and processes."""

from __future__ import annotations

import mmap
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from clutch import _core


def test_one_of_many_threads_is_first() -> None:
    together = threading.Barrier(8)

    def take(flag: mmap.mmap) -> bool:
        together.wait()
        return _core.test_and_set(flag)

    with ThreadPoolExecutor(8) as threads:
        for _ in range(200):
            assert sorted(threads.map(take, [mmap.mmap(-1, 1)] * 8)) == [False] + [True] * 7


@pytest.mark.parametrize("flag", [b"\0", bytearray()])
def test_a_flag_is_one_writable_byte_or_more(flag: bytes | bytearray) -> None:
    with pytest.raises(BufferError, match="a writable buffer of at least one byte"):
        _core.test_and_set(flag)
