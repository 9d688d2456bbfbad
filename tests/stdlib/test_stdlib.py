"""The standard library's contract: its own cases for process pools, but for the differences that are listed."""

from __future__ import annotations

import sys

import pytest
from differences import DIFFERENCES, FIRST, LAST, Difference

if not FIRST <= sys.version_info[:2] <= LAST:
    reason = "the differences are listed for the cases of Python {}.{} to {}.{}".format(*FIRST, *LAST)
    pytest.skip(reason, allow_module_level=True)

import cases

CLASSES = cases.make_cases()


@pytest.fixture(autouse=True)
def _adapted(monkeypatch: pytest.MonkeyPatch) -> None:
    shutdown = cases.load("test_shutdown")
    monkeypatch.setattr(shutdown, "assert_python_ok", cases.run_script(shutdown.assert_python_ok))
    monkeypatch.setattr("concurrent.futures.ProcessPoolExecutor", cases.Named)


def expect(difference: Difference) -> None:
    """Its cases must fail, and with its error: the list stays true."""
    for case in difference.cases_of(sys.version_info[:2]):
        kind, test = case.split(".")
        mark = pytest.mark.xfail(strict=True, raises=difference.error, reason=difference.reason)
        setattr(CLASSES[kind], test, mark(cases.own(CLASSES[kind], test)))


for difference in DIFFERENCES:
    expect(difference)
globals().update(CLASSES)
