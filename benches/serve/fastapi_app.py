"""The FastAPI app of the rows and of the grid: `async def` and `def` endpoints, a few bytes and a megabyte."""

import asyncio
import os

from fastapi import FastAPI
from fastapi.responses import Response

_LARGE = b"\xa5" * 1_000_000
_PID_SECONDS = 0.05

app = FastAPI()


@app.get("/async/small")
async def async_small() -> dict[str, str]:
    """A small JSON object."""
    return {"message": "Hello, world!"}


@app.get("/sync/small")
def sync_small() -> dict[str, str]:
    """The same from FastAPI's thread pool."""
    return {"message": "Hello, world!"}


@app.get("/async/large")
async def async_large() -> Response:
    """A megabyte that is there already."""
    return Response(_LARGE)


@app.get("/sync/large")
def sync_large() -> Response:
    """The same from FastAPI's thread pool."""
    return Response(_LARGE)


@app.get("/pid")
async def pid() -> int:
    """Which worker answers; slow enough for requests at the same time to reach them all."""
    await asyncio.sleep(_PID_SECONDS)
    return os.getpid()
