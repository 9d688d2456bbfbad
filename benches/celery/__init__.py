"""The same Celery app under `celery worker` and `clutch work`. Both import this module, so it imports nothing."""

BROKER, RESULTS = "CLUTCH_BENCH_BROKER", "CLUTCH_BENCH_RESULTS"
"""Environment variables of the app: the URL of its broker, and whether results are kept there."""
INSTANT = "instant"
"""The queue of the instant responder."""
