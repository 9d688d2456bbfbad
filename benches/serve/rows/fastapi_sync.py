"""A FastAPI endpoint that is `def`, so in its thread pool, and gives a small JSON object."""

from __future__ import annotations

from benches.harness import Report, Scale, more
from benches.serve import contestants
from benches.serve.rates import BEST, WORKERS, Rates

_APP = contestants.FASTAPI
ROW = Rates(
    work="FastAPI sync, small JSON",
    path="/sync/small",
    ours=contestants.clutch_candidates(_APP, WORKERS),
    peers=(
        contestants.granian_asgi_candidates(_APP, WORKERS),
        [contestants.gunicorn_uvicorn(_APP, WORKERS)],
    ),
    bars={BEST: more(1.2)},
)


def run(scale: Scale) -> Report:
    """Requests a second."""
    return ROW.run(scale)
