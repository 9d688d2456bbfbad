"""An ASGI app that does nothing: what is measured is the server."""

from __future__ import annotations

from benches.harness import Report, Scale, more
from benches.serve import contestants
from benches.serve.rates import WORKERS, Rates

_APP = contestants.NOOP_ASGI
ROW = Rates(
    work="no-op ASGI",
    path="/",
    ours=[contestants.clutch(_APP, WORKERS)],
    peers=(
        contestants.granian_asgi_candidates(_APP, WORKERS),
        [contestants.gunicorn_uvicorn(_APP, WORKERS)],
        [contestants.uvicorn(_APP, WORKERS)],
    ),
    bars={contestants.GRANIAN: more(1.4)},
)


def run(scale: Scale) -> Report:
    """Requests a second."""
    return ROW.run(scale)
