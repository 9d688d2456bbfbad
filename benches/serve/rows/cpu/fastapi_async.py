"""CPU time of a FastAPI endpoint that is `async def`."""

from __future__ import annotations

from benches.harness import Report, Scale, within
from benches.serve import contestants
from benches.serve.cpu import CpuTime
from benches.serve.rates import WORKERS

_APP = contestants.FASTAPI
ROW = CpuTime(
    work="FastAPI async, small JSON",
    path="/async/small",
    ours=[contestants.clutch(_APP, WORKERS)],
    peers=(contestants.granian_asgi_candidates(_APP, WORKERS), [contestants.gunicorn_uvicorn(_APP, WORKERS)]),
    bars_alone={contestants.GRANIAN: within(0.8), contestants.GUNICORN_UVICORN: within(0.85)},
    bars_together={contestants.GRANIAN: within(0.92), contestants.GUNICORN_UVICORN: within(0.9)},
)


def run(scale: Scale) -> Report:
    """Microseconds a request."""
    return ROW.run(scale)
