"""What tests of pools share: the events of this process's pools, and a place to meet tools."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clutch import testing
from rendezvous import Rendezvous


@pytest.fixture
def events() -> Iterator[testing.Watch]:
    """Every event from the test's start on."""
    with testing.watch() as watch:
        yield watch


@pytest.fixture
def rendezvous() -> Iterator[Rendezvous]:
    with Rendezvous() as place:
        yield place
