"""Bare Redis in processes of their own, on redis-py alone: `python -m benches.jobs.floors VERB …`.

`sweep PORT THREADS COUNT BYTES`: print how many LPUSH a second so many threads reach that share one client. `take PORT
FOLDER`: BRPOP, and send the time of each hand-over down the pipe, until killed. `hand_over PORT FOLDER COUNT WARM_UP`:
LPUSH to that loop on an idle system, and print the nanoseconds of each.
"""

from __future__ import annotations

import json
import os
import sys

import redis

from benches.jobs import agent, work

_QUEUE = "floor"
_PAYLOAD = b"x" * 100


def main() -> None:
    verb, port, *arguments = sys.argv[1:]
    client = redis.Redis(port=int(port))
    if verb == "sweep":
        threads, count, payload_bytes = map(int, arguments)
        print(json.dumps(agent.rate_of_threads(lambda share: push(client, share, payload_bytes), threads, count)))
        return
    os.environ[work.FOLDER_VARIABLE] = arguments[0]
    if verb == "take":
        take(client)
    else:
        count, warm_up = map(int, arguments[1:])
        print(json.dumps(agent.hand_overs(lambda: client.lpush(_QUEUE, _PAYLOAD), count, warm_up)))


def push(client: redis.Redis, count: int, payload_bytes: int) -> None:
    """One after the other; the client's pool gives each thread a connection of its own."""
    payload = b"x" * payload_bytes
    for _ in range(count):
        client.lpush(_QUEUE, payload)


def take(client: redis.Redis) -> None:
    """One consumer, always waiting."""
    while True:
        if client.brpop([_QUEUE], timeout=1) is not None:
            work.stamp()


if __name__ == "__main__":
    main()
