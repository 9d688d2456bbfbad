"""A FastAPI endpoint that is `async def` and gives a small JSON object."""

from __future__ import annotations

from benches.harness import Report, Scale, more
from benches.serve import contestants
from benches.serve.rates import WORKERS, Rates

_APP = contestants.FASTAPI
ROW = Rates(
    work="FastAPI async, small JSON",
    path="/async/small",
    ours=[contestants.clutch(_APP, WORKERS)],
    peers=(
        contestants.granian_asgi_candidates(_APP, WORKERS),
        [contestants.gunicorn_uvicorn(_APP, WORKERS)],
    ),
    bars={contestants.GRANIAN: more(1.2)},
)


def run(scale: Scale) -> Report:
    """Requests a second."""
    return ROW.run(scale)
