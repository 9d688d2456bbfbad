"""The app that a pool serves: found in the target, told from its kind, and put in the place of a tool."""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from clutch import _core
from clutch._worker.failure import traceback_of
from clutch._worker.handlers import asgi, tcp, wsgi
from clutch._worker.handlers.call import Tool
from clutch.errors import ConfigError

if TYPE_CHECKING:
    from clutch._worker.image import Image

NAMES = ("app", "application")
"""Of the app in a module, where the target names none."""


class App(Tool):
    """An app in the place of a tool: `_core` reads `app`, the profiles what every tool has."""

    def __init__(self, kind: str, function: Callable[..., Any], root_path: str, is_multithread: bool) -> None:
        super().__init__("", function)
        self.is_async = kind != "wsgi"
        if self.is_async:
            self.function, template = asgi.runner(function, kind), asgi.template(root_path)
        else:
            template = wsgi.template(root_path, is_multithread)
        self.lifespan = functools.partial(asgi.Lifespan, self.function, log_failure) if self.is_async else None
        self.app = ("asgi" if self.is_async else "wsgi", self.function, template, log_failure)


def log_failure(what: BaseException | str) -> None:
    """Tells what an app did wrong, on the worker's standard error."""
    text = what if isinstance(what, str) else "the app raised\n" + traceback_of(what).rstrip("\n")
    print(text, file=sys.stderr, flush=True)


def entry(image: Image, link: _core.WorkerLink) -> Tool:
    """What runs requests, or connections."""
    if image.kind == "tcp":
        return tcp.entry(image.instance, link)
    link.on_drain(link.end_endless)
    root_path = image.options["app"].get("root_path", "")
    return App(image.kind or "asgi", image.instance, root_path, is_multithread=image.shape["profile"] != "process")


def wsgi_shape(shape: dict[str, Any]) -> dict[str, Any]:
    """As gunicorn: one request at a time in a worker, or in each of its threads."""
    profile = "thread" if shape["threads"] > 1 else "process"
    return {**shape, "profile": profile, "tasks": 1}


def find(target: str, found: Any, is_factory: bool, kind: str) -> Any:
    """The app: what the target names, or its module's `app` or `application`; of a factory, what it makes."""
    if kind == "tcp":
        found = found() if is_factory else found
        tcp.form(found)
        return found
    if isinstance(found, types.ModuleType):
        name = next((name for name in NAMES if hasattr(found, name)), None)
        if name is None:
            raise ConfigError(f"target {target!r} has no {' and no '.join(NAMES)}; name the app: {target}:object")
        found = getattr(found, name)
    if is_factory:
        found = found()
    if not callable(found):
        raise ConfigError(
            f"target {target!r} is {found!r}, which cannot be called: no ASGI or WSGI app, and no factory of one"
        )
    return found


def kind_of(app: Any) -> str:
    """`asgi`, `asgi2` or `wsgi`, by how it is called: with three arguments and awaited, with one, or with two."""
    if inspect.isclass(app):
        # Of ASGI 2: it is made of a scope, and what is made is awaited.
        return "asgi2" if asgi.is_called_async(app) else "wsgi"
    if asgi.is_coroutine_function(app):
        return "asgi"
    try:
        parameters = inspect.signature(app).parameters.values()
    except (TypeError, ValueError):
        return "wsgi"
    required = [parameter for parameter in parameters if parameter.default is parameter.empty]
    return {3: "asgi", 1: "asgi2"}.get(len(required), "wsgi")
