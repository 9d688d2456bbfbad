"""All kinds of targets that a pool can serve, in one table."""

from __future__ import annotations

from typing import Any

from clutch._worker.handlers import app, tcp
from clutch._worker.handlers.kind import TargetKind

KINDS: dict[str, TargetKind] = {
    "asgi": app.ASGI,
    "asgi2": app.ASGI2,
    "wsgi": app.WSGI,
    "tcp": tcp.CONNECTIONS,
}


def find(target: str, found: Any, options: dict[str, Any]) -> tuple[Any, str]:
    """Return the object to serve and the name of its kind; `auto`: a web app, whose kind its signature tells."""
    name: str = options["kind"]
    served = KINDS[name].find if name in KINDS else app.find
    found = served(target, found, options.get("factory", False))
    return found, app.kind_of(found) if name == "auto" else name
