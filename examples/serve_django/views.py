"""Views of both kinds: Django runs each under ASGI and under WSGI."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

PIECE_BYTES = 64 << 10


async def greet(request: HttpRequest) -> HttpResponse:
    await asyncio.sleep(0)
    return HttpResponse("Hello from Django\n", content_type="text/plain")


def split(request: HttpRequest, total: int, people: int) -> JsonResponse:
    """Nobody to share: an exception, and so a 500."""
    return JsonResponse({"each": total / people})


@csrf_exempt  # for programs, which bring no cookie that another page could use
@require_POST
def digest(request: HttpRequest) -> JsonResponse:
    found, size = hashlib.sha256(), 0
    while piece := request.read(PIECE_BYTES):
        found.update(piece)
        size += len(piece)
    return JsonResponse({"bytes": size, "sha256": found.hexdigest()})


def countdown(request: HttpRequest, n: int) -> StreamingHttpResponse:
    """Under ASGI Django streams only what is an async iterator, under WSGI only what is none."""
    lines = later(n) if isinstance(request, ASGIRequest) else now(n)
    return StreamingHttpResponse(lines, content_type="text/plain")


def now(n: int) -> Iterator[str]:
    for left in range(n, 0, -1):
        yield f"{left}\n"


async def later(n: int) -> AsyncIterator[str]:
    for line in now(n):
        yield line
        await asyncio.sleep(0)
