"""Django's own cases for tasks, with backends of Clutch in place of Django's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from suites import path_of

CASES = Path(__file__).with_name("django_cases.py")

_OF_DUMMY = "changes a result in the memory of DummyBackend; ours are in the store"
_OF_IMMEDIATE = "ImmediateBackend keeps no results and runs nothing later; here both can be had"
DIFFERENT = {
    "test_dummy_backend.DummyBackendTestCase.test_refresh_result": _OF_DUMMY,
    "test_dummy_backend.DummyBackendTestCase.test_refresh_result_async": _OF_DUMMY,
    "test_immediate_backend.ImmediateBackendTestCase.test_cannot_get_result": _OF_IMMEDIATE,
    "test_immediate_backend.ImmediateBackendTestCase.test_cannot_refresh_result": _OF_IMMEDIATE,
    "test_immediate_backend.ImmediateBackendTestCase.test_cannot_pass_run_after": _OF_IMMEDIATE,
}


def test_djangos_own_cases_for_tasks() -> None:
    django = pytest.importorskip("django")
    if django.VERSION < (6,):
        pytest.importorskip("django_tasks")
    folder = path_of("django", "tasks")
    done = subprocess.run([sys.executable, CASES, folder], capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    failed = {name: trace for name, trace in found.items() if trace is not None}
    assert len(found) > 60
    assert failed.keys() == DIFFERENT.keys(), "\n".join(failed[name] for name in failed.keys() - DIFFERENT.keys())
