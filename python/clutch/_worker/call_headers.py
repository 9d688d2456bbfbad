"""The headers of the running call, as a network front passes them on."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType

HEADERS: ContextVar[Mapping[str, str] | None] = ContextVar("clutch.call_headers", default=None)
"""Set by the worker around a call."""


def call_headers() -> Mapping[str, str]:
    """Return the HTTP headers of the running call, by lower-case name.

    `x-request-id` is always among them; `traceparent`, `tracestate` and those that the front lists in `pass_headers`
    are where the client sent them. `clutch-caller` is the name of the client's token, if it has one in `token_file`;
    clients cannot set it. The mapping can be read only. It is empty outside of a call, and in a call from Python. A
    thread that a tool starts has its own, empty one, but for `asyncio.to_thread`.

        from opentelemetry.propagate import extract

        with tracer.start_as_current_span("total", context=extract(clutch.call_headers())):
            ...
    """
    return MappingProxyType(HEADERS.get() or {})
