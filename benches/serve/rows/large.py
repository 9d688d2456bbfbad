"""A megabyte from a FastAPI endpoint: how often the bytes are copied."""

from __future__ import annotations

from benches.harness import Report, Scale, more
from benches.serve import contestants
from benches.serve.rates import BEST, WORKERS, Rates

_APP = contestants.FASTAPI
ROW = Rates(
    work="1 MB response",
    path="/async/large",
    body_bytes=1_000_000,
    ours=[contestants.clutch(_APP, WORKERS)],
    peers=(
        contestants.granian_asgi_candidates(_APP, WORKERS),
        [contestants.gunicorn_uvicorn(_APP, WORKERS)],
        [contestants.uvicorn(_APP, WORKERS)],
    ),
    bars={BEST: more(0.9)},
)


def run(scale: Scale) -> Report:
    """Requests a second."""
    return ROW.run(scale)
