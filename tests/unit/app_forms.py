"""Apps by their forms alone, for the detection of what they speak; none of them answers anything."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


async def coroutine_function(scope: Any, receive: Any, send: Any) -> None: ...


def gives_a_coroutine(scope: Any, receive: Any, send: Any) -> Any: ...


def environ_and_start(environ: Any, start_response: Any) -> Any: ...


def environ_start_and_more(environ: Any, start_response: Any, *more: Any) -> Any: ...


def made_of_a_scope(scope: Any) -> Any: ...


def anything(*arguments: Any, **named: Any) -> Any: ...


def first_and_more(first: Any, *more: Any) -> Any: ...


class Async:
    async def __call__(self, scope: Any, receive: Any, send: Any) -> None: ...


class Wsgi:
    def __call__(self, environ: Any, start_response: Any) -> Any: ...


class AsyncAnything:
    async def __call__(self, *arguments: Any, **named: Any) -> None: ...


class Anything:
    def __call__(self, *arguments: Any, **named: Any) -> Any: ...


class OfASlot:
    """As a middleware of Sentry: each instance has its own `__call__`."""

    __slots__ = ("__call__",)

    def __init__(self, form: Callable[..., Any]) -> None:
        self.__call__ = form


class Two:
    def __init__(self, scope: Any) -> None: ...

    async def __call__(self, receive: Any, send: Any) -> None: ...


class WsgiClass:
    def __init__(self, environ: Any, start_response: Any) -> None: ...


class Methods:
    async def asgi(self, scope: Any, receive: Any, send: Any) -> None: ...

    def wsgi(self, environ: Any, start_response: Any) -> Any: ...


def with_option(option: Any, scope: Any, receive: Any, send: Any) -> Any: ...


def decorated(form: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(form)
    def call(*arguments: Any, **named: Any) -> Any:
        return form(*arguments, **named)

    return call


ASGI = {
    "coroutine_function": coroutine_function,
    "gives_a_coroutine": gives_a_coroutine,
    "instance": Async(),
    "async_anything": AsyncAnything(),
    "slot": OfASlot(Methods().asgi),
    "method": Methods().asgi,
    "partial": functools.partial(coroutine_function),
    "partial_of_an_instance": functools.partial(Async()),
    "partial_with_an_argument": functools.partial(with_option, "option"),
    "decorated": decorated(coroutine_function),
    "decorated_instance": decorated(Async().__call__),
    "decorated_partial": functools.partial(decorated(gives_a_coroutine)),
}
WSGI = {
    "function": environ_and_start,
    "more": environ_start_and_more,
    "instance": Wsgi(),
    "slot": OfASlot(Methods().wsgi),
    "method": Methods().wsgi,
    "class": WsgiClass,
    "partial": functools.partial(environ_and_start),
    "decorated": decorated(environ_and_start),
}
ASGI_2 = {"function": made_of_a_scope, "class": Two, "slot": OfASlot(made_of_a_scope)}
UNSEEN = {"function": anything, "instance": Anything(), "one_and_more": first_and_more, "slot": OfASlot(anything)}
FORMS = {"asgi": ASGI, "wsgi": WSGI, "asgi2": ASGI_2, None: UNSEEN}
