"""A FastAPI app: `async def` and `def` endpoints, a few bytes and a megabyte."""

from fastapi import FastAPI
from fastapi.responses import Response

LARGE = b"\xa5" * 1_000_000

app = FastAPI()


@app.get("/async/small")
async def async_small() -> dict[str, str]:
    return {"message": "Hello, world!"}


@app.get("/sync/small")
def sync_small() -> dict[str, str]:
    return {"message": "Hello, world!"}


@app.get("/async/large")
async def async_large() -> Response:
    return Response(LARGE)


@app.get("/sync/large")
def sync_large() -> Response:
    return Response(LARGE)
