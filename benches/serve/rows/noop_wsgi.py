"""A WSGI app that does nothing: what is measured is the server."""

from __future__ import annotations

from benches.harness import Report, Scale, more
from benches.serve import contestants
from benches.serve.rates import WORKERS, Rates

_APP = contestants.NOOP_WSGI
_GTHREAD_THREADS = 4
ROW = Rates(
    work="no-op WSGI",
    path="/",
    ours=[contestants.clutch(_APP, WORKERS)],
    peers=(
        contestants.granian_wsgi_candidates(_APP, WORKERS),
        [contestants.gunicorn_sync(_APP, WORKERS)],
        [contestants.gunicorn_gthread(_APP, WORKERS, _GTHREAD_THREADS)],
    ),
    bars={contestants.GRANIAN: more(1.0), contestants.GUNICORN_SYNC: more(8)},
)


def run(scale: Scale) -> Report:
    """Requests a second."""
    return ROW.run(scale)
