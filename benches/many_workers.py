"""One sample of the row of many workers: start them, wait until all are ready, stop them.

Run as `python -m benches.many_workers COUNT GRACE`; prints one JSON line.
"""

from __future__ import annotations

import json
import sys
import time

import clutch


def main() -> None:
    count, grace = int(sys.argv[1]), float(sys.argv[2])
    began = time.perf_counter()
    with clutch.Pool("benches.echo_tools", workers=count, grace=grace) as pool:
        pool.wait_ready(count)
        ready = time.perf_counter()
        assert pool.call("echo", "hello") == "hello"
        stopping = time.perf_counter()
    print(json.dumps({"ready_s": ready - began, "stop_s": time.perf_counter() - stopping}))


if __name__ == "__main__":
    main()
