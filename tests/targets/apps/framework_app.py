"""A FastAPI app that uses what frameworks offer: middleware, background tasks, threads, context variables, files."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio.to_thread
from fastapi import BackgroundTasks, FastAPI, Request, Response
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import StreamingResponse
from starlette.staticfiles import StaticFiles

from support.rendezvous import meet

TEXT = "again and " * 1000
name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="nobody")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """As many apps do it: with a number of its own."""
    if chosen := os.environ.get("APP_THREADS"):
        anyio.to_thread.current_default_thread_limiter().total_tokens = int(chosen)
    yield


app = FastAPI(lifespan=lifespan)
app.add_middleware(GZipMiddleware, minimum_size=1000)
app.mount("/static", StaticFiles(directory=Path(__file__).parent))


class Naming(BaseHTTPMiddleware):
    async def dispatch(self, request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        name.set(request.headers.get("name", "nobody"))
        response = await call_next(request)
        response.headers["named"] = name.get()
        return response


app.add_middleware(Naming)


@app.get("/async-name")
async def async_name() -> str:
    before = name.get()
    await asyncio.sleep(0)
    return f"{before} {name.get()}"


@app.get("/sync-name")
def sync_name() -> str:
    return name.get()


@app.get("/threads")
async def threads() -> dict[str, Any]:
    """Who runs what, and how many threads of anyio there may be."""
    here = threading.get_ident()
    there = [await anyio.to_thread.run_sync(threading.get_ident), await asyncio.to_thread(threading.get_ident)]
    return {
        "apart": [here != thread for thread in there],
        "anyio": anyio.to_thread.current_default_thread_limiter().total_tokens,
    }


@app.get("/borrowed")
async def borrowed() -> float:
    """Threads of anyio in use."""
    return anyio.to_thread.current_default_thread_limiter().borrowed_tokens


@app.get("/text")
async def text() -> str:
    return TEXT


@app.get("/endless")
async def endless() -> StreamingResponse:
    async def ticks() -> AsyncIterator[str]:
        while True:
            yield "tick\n"
            await asyncio.sleep(0.01)

    return StreamingResponse(ticks())


@app.get("/later")
async def later(port: int, tasks: BackgroundTasks) -> str:
    tasks.add_task(meet, port, "after the response")
    return "at once"


@app.get("/meet")
def meeting(port: int) -> str:
    return meet(port)


@app.get("/fan")
async def fan(port: int, n: int) -> list[str]:
    """One request with many threads."""
    return await asyncio.gather(*(asyncio.to_thread(meet, port) for _ in range(n)))
