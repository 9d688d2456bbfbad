"""CPU time of an ASGI app that does nothing."""

from __future__ import annotations

from benches.harness import Report, Scale, within
from benches.serve import contestants
from benches.serve.cpu import CpuTime
from benches.serve.rates import WORKERS

_APP = contestants.NOOP_ASGI
ROW = CpuTime(
    work="no-op ASGI",
    path="/",
    ours=[contestants.clutch(_APP, WORKERS)],
    peers=(contestants.granian_asgi_candidates(_APP, WORKERS), [contestants.gunicorn_uvicorn(_APP, WORKERS)]),
    bars_alone={contestants.GRANIAN: within(0.65), contestants.GUNICORN_UVICORN: within(0.55)},
    bars_together={contestants.GRANIAN: within(0.92), contestants.GUNICORN_UVICORN: within(0.65)},
)


def run(scale: Scale) -> Report:
    """Microseconds a request."""
    return ROW.run(scale)
