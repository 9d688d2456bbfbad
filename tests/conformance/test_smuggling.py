"""Our own matrix of requests that two servers could read differently, judged by what the app saw."""

from __future__ import annotations

import pytest
from benches.hostile import matrix, servers
from benches.hostile.server import Server


@pytest.mark.parametrize("server", [servers.CLUTCH_ASGI, servers.CLUTCH_WSGI], ids=lambda server: server.name)
def test_failure_42_nothing_ambiguous_passes_over_http1(server: Server) -> None:
    assert matrix.complaints_over_http1(server) == {}


@pytest.mark.parametrize("server", [servers.CLUTCH_ASGI, servers.CLUTCH_WSGI], ids=lambda server: server.name)
def test_failure_42_nothing_ambiguous_passes_over_http2(server: Server) -> None:
    assert matrix.complaints_over_http2(server) == {}
