"""What tests of pools share: the events of this process's pools, and a place to meet tools."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from clutch import testing
from support.rendezvous import Rendezvous


@pytest.fixture(autouse=True, scope="session")
def _own_runtime_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Control sockets of tests are not among the user's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))
        yield


@pytest.fixture(autouse=True, scope="session")
def _hears_ctrl_c() -> None:
    """A shell starts what it puts into the background with SIGINT ignored, and each program hands that on to those
    that it starts: the tests' own, too, which are sent one."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def events() -> Iterator[testing.Watch]:
    """Every event from the test's start on."""
    with testing.watch() as watch:
        yield watch


@pytest.fixture
def rendezvous() -> Iterator[Rendezvous]:
    with Rendezvous() as place:
        yield place
