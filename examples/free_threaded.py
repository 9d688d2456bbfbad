"""Pure Python in parallel threads: a pool on a free-threaded interpreter, under any dispatcher.

The pool has its own interpreter, so the rest of the program may run on an ordinary one. Functions go by name there:
code cannot be sent between Python versions of Python. `make free-threaded` sets up `.venv-ft`.

Run: python examples/free_threaded.py
"""

import os
import time
from pathlib import Path

from clutch import Pool

_CALLS = 8
_LIMIT = 20_000
_ENVIRONMENT = Path(__file__).resolve().parents[1] / ".venv-ft"


def main() -> None:
    python = free_threaded_python()
    if python is None:
        print("skipped: no free-threaded interpreter here; `make free-threaded` installs one")
        return
    seconds = {threads: seconds_with(python, threads) for threads in (1, 2)}
    for threads, spent in seconds.items():
        print(f"{threads} thread(s): {spent:.2f} s")
    print(f"two threads are {seconds[1] / seconds[2]:.2f} times as fast as one")


def free_threaded_python() -> str | None:
    """What the environment names, or what `make free-threaded` has finished."""
    usual = str(_ENVIRONMENT / "bin" / "python") if (_ENVIRONMENT / ".built").exists() else None
    return os.environ.get("CLUTCH_TEST_FT_PYTHON") or usual


def seconds_with(python: str, threads: int) -> float:
    """How long the same calls take on one worker with that many threads."""
    with Pool("shop.tools", profile="thread", workers=1, threads=threads, python=python) as pool:
        print("global lock:", pool.call("gil_is_on"))
        began = time.perf_counter()
        futures = [pool.submit("count_primes", limit=_LIMIT) for _ in range(_CALLS)]
        assert len({future.result() for future in futures}) == 1
        return time.perf_counter() - began


if __name__ == "__main__":
    main()
