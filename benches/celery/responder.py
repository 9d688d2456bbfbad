"""`python -m benches.celery.responder`: the floor of latency. Takes messages off a queue of its own, runs nothing, and
stores a result for each by the app's backend."""

from __future__ import annotations

import json
import os

import redis

from benches.celery import BROKER, INSTANT
from benches.celery.app import app


def main() -> None:
    client = redis.Redis.from_url(os.environ[BROKER], socket_timeout=None)  # it waits as long as nobody asks
    while True:
        _, text = client.brpop([INSTANT])
        app.backend.store_result(json.loads(text)["headers"]["id"], None, "SUCCESS")


if __name__ == "__main__":
    main()
