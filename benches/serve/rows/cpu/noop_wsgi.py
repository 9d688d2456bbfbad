"""CPU time of a WSGI app that does nothing."""

from __future__ import annotations

from benches.harness import Report, Scale, within
from benches.serve import contestants
from benches.serve.cpu import CpuTime
from benches.serve.rates import WORKERS

_APP = contestants.NOOP_WSGI
ROW = CpuTime(
    work="no-op WSGI",
    path="/",
    ours=[contestants.clutch(_APP, WORKERS)],
    peers=(contestants.granian_wsgi_candidates(_APP, WORKERS),),
    bars_alone={contestants.GRANIAN: within(0.65)},
    bars_together={contestants.GRANIAN: within(0.75)},
)


def run(scale: Scale) -> Report:
    """Microseconds a request."""
    return ROW.run(scale)
