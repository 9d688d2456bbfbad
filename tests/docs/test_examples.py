"""Each example runs as a reader would run it, ends by itself, and prints what it promises."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

_EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
_SECONDS_MAX = 60
_SERVED = {"serve_fastapi", "serve_flask"}  # by tests/e2e/serve/test_serve_frameworks.py

# What a run must print, as regular expressions; an example that cannot run here says "skipped".
_PROMISES = {
    "call_by_name": [
        r"total: 30\.0",
        r"common words: \[\('to', 2\), \('be', 2\)\]",
        r"three at once: \[1, 2, 3\]",
        r"with a deadline: 4\.0",
        r"a wrong name: .*totl.*",
    ],
    "call_by_function": [
        r"call: 144",
        r"map: \[0, 1, 4, 9, 16, 25\]",
        r"as_completed: \[\(3, 9\), \(4, 16\)\]",
        r"a lambda: 70",
        r"in another process: True",
        r"the original exception: ZeroDivisionError",
    ],
    "from_asyncio": [
        r"stock: \[\{'tea': 3\}, \{'coffee': 6\}\]",
        r"by function: 25",
        r"50 waits in one worker: True",
        r"streamed: receipt 1\nstreamed: receipt 2\nstreamed: receipt 3",
    ],
    "streams": [
        r"countdown: 3\ncountdown: 2\ncountdown: 1",
        r"only the first two: \[10000000, 9999999\]",
        r"an async generator: \['receipt 7', 'receipt 8'\]",
    ],
    "model_target": [r"predicted: \[3\.0, -2\.0, 2\.0\]", r"residuals: ndarray \(3,\) True"],
    "four_profiles": [rf"(?m)^{name} +(\d|skipped)" for name in ("process", "thread", "async", "greenlet")],
    "free_threaded": [r"global lock: False", r"two threads are \d\.\d+ times as fast as one"],
    "tcp_echo": [
        r"both in one worker: True",
        r"one: HELLO\nother: GOOD MORNING",
        r"after the reload: goodbye goodbye",
        r"in another worker: True\nlate: STILL THERE\?",
    ],
    "jobs": [
        r"the same job: True",
        r"refused at once: tool 'charge': fails: Input should be a valid integer",
        r"of two transactions one has its job: \['cleo'\]",
        r"charged: ann",
        r"after failures: \['ConnectionError: the bank hangs up, attempt 1', '.*, attempt 2'\]",
        r"in the store: \{'available': 0, 'completed': 4, 'dead': 0\}",
    ],
    "http_curl": [r'\{"result": ?25\}', r"1\. Definitions", r"below", r"primes?"],
}


def test_every_example_has_promises() -> None:
    assert {path.stem for path in _EXAMPLES.glob("*.py")} - _SERVED == set(_PROMISES)


@pytest.mark.parametrize("name", _PROMISES)
def test_example_prints_what_it_promises(name: str) -> None:
    command = [sys.executable, str(_EXAMPLES / f"{name}.py")]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS_MAX)
    assert finished.returncode == 0, finished.stderr
    if finished.stdout.startswith("skipped"):
        pytest.skip(finished.stdout.strip())
    for promise in _PROMISES[name]:
        assert re.search(promise, finished.stdout), f"{promise!r} is not in:\n{finished.stdout}\n{finished.stderr}"
