"""The app that a pool serves: found in the target, told from its kind, and put in the place of a tool."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable
from typing import Any

from clutch import _core
from clutch._worker.failure import traceback_of
from clutch._worker.handlers import asgi, routes, wsgi
from clutch._worker.handlers.call import Tool
from clutch._worker.handlers.kind import TargetKind
from clutch.errors import ConfigError
from clutch.tools import options_of

NAMES = ("app", "application")
"""Names of the app in a module, if the target names none."""

HOLDERS = (*NAMES, "asgi_app", "wsgi_app", "server")
"""Attributes by which a wrapper, or another object that is no app itself, holds its app."""
WRAPPERS_MAX = 10
HINTS_MAX = 3

NOT_MAPPINGS = frozenset({"int", "float", "complex", "bool", "str", "bytes", "list", "List", "tuple", "set", "None"})
"""Names of types that neither a scope nor an environ can be."""


REQUESTS = ("scope", "environ", "env")
"""Names that the first argument of an app has."""

WRAPPED_REQUESTS = ("request", "req")
"""Names that the only argument of a function has that a decorator makes an app of."""


class App(Tool):
    """An app as a tool: `_core` reads `app`, profiles read the attributes of every tool."""

    def __init__(self, kind: str, function: Callable[..., Any], options: dict[str, Any], is_multithread: bool) -> None:
        super().__init__("", function)
        routes.tell()
        self.is_async = kind != "wsgi"
        if self.is_async:
            self.function, template = asgi.runner(function, kind), asgi.template(options["root_path"])
            self.is_eager = True
            self.lifecycle = functools.partial(asgi.Lifespan, self.function, log_failure, options["lifespan"])
        else:
            template = wsgi.template(options["root_path"], is_multithread)
        self.is_held_in_slots = not self.is_async
        self.protocol = "asgi" if self.is_async else "wsgi"
        self.app = self.function, template, log_failure


def log_failure(what: BaseException | str) -> None:
    """Write an error of an app to the worker's standard error."""
    text = what if isinstance(what, str) else "the app raised\n" + traceback_of(what).rstrip("\n")
    print(text, file=sys.stderr, flush=True)


def entry(kind: str, app: Any, options: dict[str, Any], profile: str, worker: _core.Worker) -> Tool:
    """Return the tool that runs requests."""
    worker.slots.on_drain(worker.link.end_endless)
    return App(kind, app, options, is_multithread=profile != "process")


def wsgi_shape(shape: dict[str, Any]) -> dict[str, Any]:
    """The default profile of WSGI apps, as in gunicorn: one request at a time per worker or thread."""
    profile = "thread" if shape["threads"] > 1 else "process"
    return {**shape, "profile": profile, "tasks": 1}


def find(target: str, found: Any, is_factory: bool) -> Any:
    """Return the app: the object that the target names, or `app` or `application` of the module; calls a factory."""
    if isinstance(found, types.ModuleType):
        name = next((name for name in NAMES if hasattr(found, name)), None)
        if name is None:
            raise ConfigError(f"target {target!r} has no {' and no '.join(NAMES)}; name the app: {target}:object")
        found = getattr(found, name)
    if is_factory:
        found = found()
    else:
        refuse_factory(found)
    if not callable(found):
        raise ConfigError(
            f"target {target!r} is {found!r}, which is not callable: neither an ASGI or WSGI app nor a factory of one"
            f"{hint_of_apps(target, found)}"
        )
    return found


def hint_of_apps(target: str, found: Any) -> str:
    """Returns what to name instead of an object that makes or holds apps, as those of FastMCP do."""
    module, colon, name = target.partition(":")
    if not colon:
        return ""
    methods = [(one, getattr(type(found), one)) for one in dir(type(found)) if is_like_app(one)]
    makers = [f"{one}()" for one, method in methods if callable(method) and positional(method)[0] <= 1]
    held = [one for one, value in getattr(found, "__dict__", {}).items() if is_like_app(one) and callable(value)]
    likely = [f"'{module}:{name}.{one}'" for one in [*makers, *held][:HINTS_MAX]]
    return f"; did you mean {' or '.join(likely)}?" if likely else ""


def is_like_app(name: str) -> bool:
    return not name.startswith("_") and (name in HOLDERS or name.endswith("_app"))


def kind_of(app: Any) -> str:
    """`asgi`, `asgi2` or `wsgi`, by how it is called: with three arguments and awaited, with one, or with two.

    An object that takes any arguments is judged by the app that it holds. Raises ConfigError where that cannot be seen,
    and for a function that is none of them.
    """
    for _ in range(WRAPPERS_MAX):
        held = held_by(app)
        if held is None:
            break
        app = held
    if is_made_of_a_request(app):
        return "wsgi"
    refuse_plain_function(app)
    if inspect.isclass(app):
        # Of ASGI 2: it is made of a scope, and what is made is awaited.
        return "asgi2" if inspect.iscoroutinefunction(getattr(app, "__call__", None)) else "wsgi"  # noqa: B004
    if asgi.is_coroutine_function(app):
        return "asgi"
    required, takes_more = positional(app)
    # One argument and any number of others may be the first of two or three.
    kind = {3: "asgi", 2: "wsgi", 1: None if takes_more else "asgi2"}.get(required)
    if kind is None:
        raise ConfigError(
            f"whether {app!r} is an ASGI or a WSGI app cannot be seen from how it is called; say it with "
            'interface = "asgi", "asgi2" or "wsgi" in the table of its front, or --interface. If it makes the app, say '
            "--factory"
        )
    return kind


def held_by(app: Any) -> Any:
    """Returns the app that one forwards all its arguments to, if that can be seen, as of Dash; None otherwise."""
    if inspect.isclass(app) or inspect.isroutine(app) or asgi.is_coroutine_function(app):
        return None
    required, takes_more = positional(app)
    if required or not takes_more:
        return None
    return next((held for name in HOLDERS if callable(held := getattr(app, name, None))), None)


def is_made_of_a_request(app: Any) -> bool:
    """Returns whether a decorator made a WSGI app of a function of a request, as Werkzeug's `@Request.application`.

    The decorator takes any positional arguments and nothing else; the function in it takes a request and nothing else.
    """
    try:
        taken = inspect.signature(app, follow_wrapped=False).parameters.values()
        needed = list(inspect.signature(app).parameters.values())
    except (TypeError, ValueError):
        return False
    if [one.kind for one in taken] != [inspect.Parameter.VAR_POSITIONAL] or len(needed) != 1:
        return False
    name, hint = needed[0].name.strip("_"), needed[0].annotation
    is_hinted = str(getattr(hint, "__name__", hint)).strip("'\"").endswith("Request")
    return is_positional(needed[0]) and (name in WRAPPED_REQUESTS or is_hinted)


def refuse_factory(app: Any) -> None:
    """Raises ConfigError for a callable that needs no arguments: it may make an app, and is none."""
    if options_of(app) is not None:
        return
    signature = signature_of(app)
    if signature is None or not needs_nothing(signature) or is_named_as_app(signature):
        return
    what = f"{name_of(app)} is a class, not an app" if inspect.isclass(app) else needless(app, signature)
    raise ConfigError(f"{what}. If it makes the app, say so: --factory, or factory = true in the table of its front")


def needless(app: Any, signature: inspect.Signature) -> str:
    """Returns half a sentence about a callable that needs no arguments."""
    takes = "takes no positional" if not any(map(is_positional, signature.parameters.values())) else "requires no"
    return f"{name_of(app)}() {takes} arguments, so it is no ASGI or WSGI app"


def name_of(app: Any) -> str:
    while isinstance(app, functools.partial):
        app = app.func
    return getattr(app, "__qualname__", None) or repr(app)


def signature_of(app: Any) -> inspect.Signature | None:
    """Returns how it is called, as far as that can be seen; of a decorated function, what the decorator takes, unless
    that is anything."""
    try:
        own = inspect.signature(app, follow_wrapped=not inspect.isfunction(app))
        return inspect.signature(app) if is_open(own) else own
    except Exception:  # built-in, or a proxy that asks for its object
        return None


def is_open(signature: inspect.Signature) -> bool:
    """Returns whether it takes any number of positional arguments."""
    return any(one.kind is one.VAR_POSITIONAL for one in signature.parameters.values())


def is_positional(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def needs_nothing(signature: inspect.Signature) -> bool:
    """Returns whether no argument is required, and the positional ones are all known."""
    parameters = signature.parameters.values()
    return not is_open(signature) and all(
        one.default is not one.empty or one.kind is one.VAR_KEYWORD for one in parameters
    )


def is_named_as_app(signature: inspect.Signature) -> bool:
    """Returns whether its first argument has the name of a scope or an environ."""
    first = next(filter(is_positional, signature.parameters.values()), None)
    return first is not None and first.name.strip("_") in REQUESTS


def refuse_plain_function(app: Any) -> None:
    """Raises ConfigError for a tool, and for a function whose arguments cannot be those of an app."""
    if options_of(app) is not None:
        what = "a tool"
    elif inspect.isfunction(app) and not takes_a_request(app):
        what = "a function whose arguments are not those of an ASGI or WSGI app"
    else:
        return
    raise ConfigError(
        f"{app.__qualname__ if inspect.isfunction(app) else repr(app)} is {what}. "
        "`clutch serve` serves web apps; to make functions callable over HTTP, mark them with @tool and use "
        "`clutch run`. If it is an app all the same, say which kind with --interface asgi, asgi2 or wsgi"
    )


def takes_a_request(function: types.FunctionType) -> bool:
    """Returns whether the function could be called with a scope or an environ first, as far as its signature tells."""
    required, takes_more = positional(function)
    if takes_more:
        return True
    signature = inspect.signature(function)
    if inspect.iscoroutinefunction(function):
        try:
            signature.bind("scope", "receive", "send")
        except TypeError:
            return False
    first = next(iter(signature.parameters.values()), None)
    if first is None:
        return True  # kind_of says what is wrong
    if first.annotation is first.empty:
        return required != 1 or first.name.strip("_") in ("scope", "")
    return may_be_a_mapping(first.annotation)


def may_be_a_mapping(hint: Any) -> bool:
    """Returns whether a scope or an environ fits the type hint. Text and unknown classes count as fitting."""
    if hint is None or isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return any(map(may_be_a_mapping, typing.get_args(hint)))
    if isinstance(hint, str):
        return any(part.strip().partition("[")[0] not in NOT_MAPPINGS for part in hint.split("|"))
    origin = typing.get_origin(hint) or hint
    return getattr(origin, "__name__", None) not in NOT_MAPPINGS


def positional(app: Any) -> tuple[int, bool]:
    """Return the number of required positional arguments, and whether it takes *args."""
    for call in (app, app.__call__):  # an instance may have it in a slot
        with contextlib.suppress(TypeError, ValueError):
            parameters = inspect.signature(call).parameters.values()
            break
    else:
        return 0, True
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [one for one in parameters if one.kind in kinds and one.default is one.empty]
    return len(required), any(one.kind is one.VAR_POSITIONAL for one in parameters)


ASGI = TargetKind(find, functools.partial(entry, "asgi"), needs_loop=True)
ASGI2 = TargetKind(find, functools.partial(entry, "asgi2"), needs_loop=True)
WSGI = TargetKind(find, functools.partial(entry, "wsgi"), shape=wsgi_shape)
