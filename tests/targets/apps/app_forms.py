"""Apps by their forms alone, for the detection of what they speak; none of them answers anything."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from clutch import tool


async def coroutine_function(scope: Any, receive: Any, send: Any) -> None: ...


def gives_a_coroutine(scope: Any, receive: Any, send: Any) -> Any: ...


def environ_and_start(environ: Any, start_response: Any) -> Any: ...


def environ_start_and_more(environ: Any, start_response: Any, *more: Any) -> Any: ...


def made_of_a_scope(scope: Any) -> Any: ...


def anything(*arguments: Any, **named: Any) -> Any: ...


def first_and_more(first: Any, *more: Any) -> Any: ...


@tool
def tool_of_one(prices: Any) -> Any: ...


@tool
def tool_of_two(environ: Any, start_response: Any) -> Any: ...


@tool
async def tool_of_three(scope: Any, receive: Any, send: Any) -> None: ...


def total(prices: list[float]) -> Any: ...


def total_without_hints(prices) -> Any: ...  # type: ignore[no-untyped-def]


def add(first: int, second: int) -> Any: ...


def of_either(name: str | bytes) -> Any: ...


async def waits(seconds: float) -> None: ...


async def of_two(first: Any, second: Any) -> None: ...


def made_of_a_mapping(scope: dict[str, Any]) -> Any: ...


def made_without_hints(scope) -> Any: ...  # type: ignore[no-untyped-def]


def of_a_string_hint(environ: "WSGIEnvironment", start_response: "StartResponse") -> Any: ...  # type: ignore[name-defined]  # noqa: F821, UP037


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


async def with_defaults(scope: Any = None, receive: Any = None, send: Any = None) -> None: ...


def make() -> Any:
    return Async()


def make_of(settings: Any = None) -> Any:
    return Async()


def make_of_three(settings: Any = None, debug: bool = False, title: str = "shop") -> Any:
    return Async()


def make_of_names(*, debug: bool = False, **settings: Any) -> Any:
    return Async()


class Maker:
    def __call__(self, settings: Any = None) -> Any:
        return Async()


class OwnApp(Async):
    def __init__(self, title: str = "shop") -> None: ...


def decorated(form: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(form)
    def call(*arguments: Any, **named: Any) -> Any:
        return form(*arguments, **named)

    return call


def answers_with(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `@Request.application` of Werkzeug: of a function of a request it makes an app, of a method a method."""

    @functools.wraps(function)
    def application(*arguments: Any) -> Any: ...

    return application


@answers_with
def answer(request: Any) -> Any: ...


@answers_with
def answer_with_hint(asked: "werkzeug.Request") -> Any: ...  # type: ignore[name-defined]  # noqa: F821, UP037


class Answers:
    @answers_with
    def __call__(self, request: Any) -> Any: ...

    @answers_with
    def method(self, request: Any) -> Any: ...


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
    "text_as_hint": of_a_string_hint,
    "more": environ_start_and_more,
    "instance": Wsgi(),
    "slot": OfASlot(Methods().wsgi),
    "method": Methods().wsgi,
    "class": WsgiClass,
    "partial": functools.partial(environ_and_start),
    "decorated": decorated(environ_and_start),
    "of_a_request": answer,
    "of_a_hinted_request": answer_with_hint,
    "instance_of_a_request": Answers(),
    "method_of_a_request": Answers().method,
}
ASGI_2 = {
    "function": made_of_a_scope,
    "mapping": made_of_a_mapping,
    "without_hints": made_without_hints,
    "class": Two,
    "slot": OfASlot(made_of_a_scope),
}
UNSEEN = {"function": anything, "instance": Anything(), "one_and_more": first_and_more, "slot": OfASlot(anything)}
TOOLS = {"one": tool_of_one, "two": tool_of_two, "three": tool_of_three, "partial": functools.partial(tool_of_one)}
FUNCTIONS = {
    "list": total,
    "without_hints": total_without_hints,
    "two_numbers": add,
    "either": of_either,
    "async_of_one": waits,
    "async_of_two": of_two,
    "decorated": answers_with(total_without_hints),
    "decorated_request": decorated(lambda request: None),
    "request": lambda request: None,
}
FACTORIES = {
    "function": make,
    "lambda": lambda: Async(),
    "option": make_of,
    "as_many_options_as_asgi_has": make_of_three,
    "names": make_of_names,
    "partial": functools.partial(make_of, "settings"),
    "cached": functools.cache(make),
    "decorated": decorated(make_of),
    "instance": Maker(),
    "method": Maker().__call__,
    "class": OwnApp,
}
FORMS = {"asgi": ASGI, "wsgi": WSGI, "asgi2": ASGI_2, None: UNSEEN}
