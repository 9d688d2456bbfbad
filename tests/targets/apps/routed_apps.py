"""The same two routes in several frameworks, as factories: `/items/…`, and one below a prefix that fails."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any


def of_fastapi() -> Any:
    from fastapi import FastAPI
    from starlette.middleware.base import BaseHTTPMiddleware

    app, mounted = FastAPI(), FastAPI()

    async def passed_on(request: Any, go_on: Callable[[Any], Awaitable[Any]]) -> Any:
        return await go_on(request)

    @app.get("/items/{number}")
    def item(number: int) -> int:
        return number

    @mounted.get("/fails/{why}")
    async def fails(why: str) -> None:
        raise RuntimeError(why)

    app.mount("/sub", mounted)
    app.add_middleware(BaseHTTPMiddleware, dispatch=passed_on)
    return app


def of_starlette() -> Any:
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Mount, Route

    async def item(request: Any) -> PlainTextResponse:
        return PlainTextResponse(request.path_params["number"])

    async def fails(request: Any) -> PlainTextResponse:
        raise RuntimeError(request.path_params["why"])

    routes = [Route("/items/{number}", item), Mount("/sub", routes=[Route("/fails/{why}", fails)])]
    return Starlette(routes=routes)


def of_flask() -> Any:
    from flask import Blueprint, Flask

    app, sub = Flask(__name__), Blueprint("sub", __name__, url_prefix="/sub")

    @app.get("/items/<int:number>")
    def item(number: int) -> str:
        return str(number)

    @sub.get("/fails/<why>")
    def fails(why: str) -> str:
        raise RuntimeError(why)

    app.register_blueprint(sub)
    return app


def set_django_up() -> None:
    import django
    from django.conf import settings
    from django.http import HttpResponse
    from django.urls import include, path

    def item(request: Any, number: int) -> Any:
        return HttpResponse(str(number))

    def fails(request: Any, why: str) -> Any:
        raise RuntimeError(why)

    urls: Any = sys.modules[__name__]
    urls.urlpatterns = [path("items/<int:number>", item), path("sub/", include([path("fails/<why>", fails)]))]
    settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="of a test")
    django.setup()


def of_django() -> Any:
    from django.core.wsgi import get_wsgi_application

    set_django_up()
    return get_wsgi_application()


def of_django_async() -> Any:
    from django.core.asgi import get_asgi_application

    set_django_up()
    return get_asgi_application()


def of_nobody() -> Any:
    """An app that tells its route itself, once."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"].startswith("/items/"):
            scope["clutch.route"] = "/items/N"
        await send({"type": "http.response.start", "status": 200})
        if scope["path"].startswith("/sub/"):
            # Too late: the head has gone.
            scope["clutch.route"] = "/sub"
        await send({"type": "http.response.body"})

    return app


def of_mounted() -> Any:
    """Below `/to/{tenant}`, in FastAPI: routes that were included twice, an app of another framework, and files."""
    from django.core.asgi import get_asgi_application
    from fastapi import APIRouter, FastAPI
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route, Router

    set_django_up()
    app, tenant, outer, inner = FastAPI(), FastAPI(), APIRouter(prefix="/out"), APIRouter()

    @inner.get("/items/{number}")
    def item(number: int) -> int:
        return number

    async def plain(request: Any) -> PlainTextResponse:
        return PlainTextResponse(request.path_params["number"])

    inner.mount("/plain/{kind:int}", Router([Route("/items/{number}", plain)]))
    outer.include_router(inner, prefix="/in")
    tenant.include_router(outer, prefix="/v1")
    tenant.mount("/django", get_asgi_application())
    tenant.mount("/files", PlainTextResponse("a file"))
    app.mount("/to/{tenant}", tenant)
    return app


def of_dispatched() -> Any:
    """Flask at the top and below `/b`, Django below that, all behind a middleware that keeps its app to itself."""
    from werkzeug.middleware.dispatcher import DispatcherMiddleware

    mounted = DispatcherMiddleware(of_flask(), {"/django": of_django()})
    dispatcher = DispatcherMiddleware(of_flask(), {"/b": mounted})

    def app(environ: Any, start_response: Any) -> Any:
        return dispatcher(environ, start_response)

    return app
