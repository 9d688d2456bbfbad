"""What this process and its workers write to standard error meanwhile, none of it lost.

pytest's own `capfd` rewinds and empties the file into which others write at that moment: what comes between is gone.
It is fit for what is over; here is one to wait on.
"""

from __future__ import annotations

import os
import tempfile
from types import TracebackType
from typing import Self

from support.clutch_process import soon

STDERR = 2


class Stderr:
    """Descriptor 2, led into a file that is only appended to. No fixture: before a test begins pytest takes it back."""

    def __enter__(self) -> Self:
        self._file = tempfile.TemporaryFile("ab+")
        self._saved = os.dup(STDERR)
        os.dup2(self._file.fileno(), STDERR)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.dup2(self._saved, STDERR)
        os.close(self._saved)
        os.write(STDERR, self.text.encode())  # for the report, where the test fails
        self._file.close()

    @property
    def text(self) -> str:
        """All that has been written so far."""
        fd = self._file.fileno()
        return os.pread(fd, os.fstat(fd).st_size, 0).decode(errors="replace")

    def wait(self, words: str, count: int = 1) -> str:
        """All so far, once `words` have come `count` times."""
        soon(lambda: self.text.count(words) >= count)
        return self.text
