"""Where the suites of others are, once tools/get-suites.sh has fetched them; without one its tests are skipped."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_FETCHED = ROOT / ".conformance"


def path_of(name: str, *parts: str) -> Path:
    """A file or folder of a suite."""
    found = _FETCHED.joinpath(name, *parts)
    if not found.exists():
        pytest.skip(f"{name} was not fetched: tools/get-suites.sh, or make conformance, says why")
    return found
