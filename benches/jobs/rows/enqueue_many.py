"""How fast one caller enqueues many jobs into Redis, in the fastest way that each contestant has.

The floor is the same as of one by one: a share above 1 is what batches or pipelines gain over one command at a time.
"""

from __future__ import annotations

from benches.harness import Report, Scale
from benches.jobs.rows import enqueue


def run(scale: Scale) -> Report:
    """Enqueues a second, many at a time."""
    return enqueue.compared("enqueue_many", "many", scale)
