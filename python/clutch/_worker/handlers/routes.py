"""Frameworks that keep the route of a request to themselves: it is put where the server looks for it.

Starlette, FastAPI, Litestar and Flask leave it in the scope or the environ.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

ROUTE = "clutch.route"
"""Key of a scope or an environ."""


def tell(app: Any) -> None:
    """Have an app of these frameworks tell its routes."""
    for module, name, tell_of in FRAMEWORKS:
        kind = getattr(sys.modules.get(module), name, None)
        if kind is not None and isinstance(app, kind):
            tell_of(app)


def of_django(app: Any) -> None:
    resolve = app.resolve_request

    @functools.wraps(resolve)
    def resolve_request(request: Any) -> Any:
        match = resolve(request)
        place = request.scope if hasattr(request, "scope") else request.environ
        place[ROUTE] = f"/{match.route}"
        return match

    app.resolve_request = resolve_request


def of_quart(app: Any) -> None:
    preprocess = app.preprocess_request

    @functools.wraps(preprocess)
    async def preprocess_request(request_context: Any = None) -> Any:
        request: Any = getattr(request_context, "request", None)
        if (rule := getattr(request, "url_rule", None)) is not None:
            request.scope[ROUTE] = rule.rule
        return await preprocess(request_context)

    app.preprocess_request = preprocess_request


FRAMEWORKS: tuple[tuple[str, str, Callable[[Any], None]], ...] = (
    ("django.core.handlers.base", "BaseHandler", of_django),
    ("quart", "Quart", of_quart),
)
"""Module and class of an app, and how it is made to tell."""
