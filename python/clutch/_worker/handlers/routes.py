"""Frameworks that keep the route of a request, or a part of it, to themselves: it is put where the server looks for it.

FastAPI, Litestar, Starlette and Flask leave the route itself in the scope or the environ. Classes are made to tell, not
apps: what a middleware or another app holds is not seen.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, MutableMapping
from typing import Any

ROUTE = "clutch.route"
"""Key of a scope or an environ: the route."""

PLACE = "clutch.place"
"""Key of a scope: where what answers is mounted, with the names of parameters instead of their values."""

SCRIPT_NAME = "clutch.script_name"
"""Key of an environ: the SCRIPT_NAME below which apps are mounted. A proxy may have its part in it."""


def tell() -> None:
    """Have the frameworks that are loaded tell their routes."""
    for module, name, method, told_by in FRAMEWORKS:
        kind = getattr(sys.modules.get(module), name, None)
        if kind is not None and kind not in TOLD:
            TOLD.add(kind)
            setattr(kind, method, told_by(getattr(kind, method)))


def place_of(request: MutableMapping[str, Any]) -> str:
    """Returns where an app is mounted, of a scope or an environ."""
    base = request.get(SCRIPT_NAME)
    return request.get(PLACE, "") if base is None else request["SCRIPT_NAME"].removeprefix(base)


def of_django(resolve: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(resolve)
    def resolve_request(handler: Any, request: Any) -> Any:
        match = resolve(handler, request)
        told = request.scope if hasattr(request, "scope") else request.environ
        told[ROUTE] = f"{place_of(told)}/{match.route}"
        return match

    return resolve_request


def of_quart(preprocess: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(preprocess)
    async def preprocess_request(app: Any, request_context: Any = None) -> Any:
        request: Any = getattr(request_context, "request", None)
        if (rule := getattr(request, "url_rule", None)) is not None:
            request.scope[ROUTE] = f"{place_of(request.scope)}{rule.rule}"
        return await preprocess(app, request_context)

    return preprocess_request


def of_mount(match: Callable[..., Any]) -> Callable[..., Any]:
    """Of Starlette, whose `root_path` has values of parameters in it."""

    @functools.wraps(match)
    def matches(mount: Any, scope: Any) -> Any:
        found, changes = match(mount, scope)
        if changes:
            changes[PLACE] = scope.get(PLACE, "") + mount.path
        return found, changes

    return matches


def of_dispatcher(call: Callable[..., Any]) -> Callable[..., Any]:
    """Of Werkzeug, which moves the place of an app to SCRIPT_NAME."""

    @functools.wraps(call)
    def called(dispatcher: Any, environ: Any, start_response: Any) -> Any:
        environ.setdefault(SCRIPT_NAME, environ.get("SCRIPT_NAME", ""))
        return call(dispatcher, environ, start_response)

    return called


FRAMEWORKS: tuple[tuple[str, str, str, Callable[[Callable[..., Any]], Callable[..., Any]]], ...] = (
    ("django.core.handlers.base", "BaseHandler", "resolve_request", of_django),
    ("quart", "Quart", "preprocess_request", of_quart),
    ("starlette.routing", "Mount", "matches", of_mount),
    ("werkzeug.middleware.dispatcher", "DispatcherMiddleware", "__call__", of_dispatcher),
)
"""Module, class and method, and how the method is made to tell."""

TOLD: set[type] = set()
"""Classes that tell."""
