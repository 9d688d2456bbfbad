"""The same function in four profiles: change one word and compare.

64 calls that each wait 50 ms for a supplier, and 8 calls that compute. Waiting gains from many slots, whatever they
are made of; computing gains from processes only, as long as the interpreter has a global lock.

Run: python examples/four_profiles.py
"""

import importlib.util
import time

from clutch import Pool

_WAITS, _SUMS = 64, 8
_PROFILES = ("process", "thread", "async", "greenlet")


def main() -> None:
    print(f"{'profile':10} {f'{_WAITS} waits':>10} {f'{_SUMS} sums':>10}")
    for profile in _PROFILES:
        if profile == "greenlet" and importlib.util.find_spec("gevent") is None:
            print(f"{profile:10} skipped: pip install 'clutch[greenlet]'")
            continue
        with Pool("shop.tools", profile=profile, workers=2) as pool:
            pool.wait_ready(2)
            waits = seconds_for(pool, _WAITS, "wait_for_supplier", seconds=0.05)
            sums = seconds_for(pool, _SUMS, "count_primes", limit=10_000)
            print(f"{profile:10} {waits:8.2f} s {sums:8.2f} s")


def seconds_for(pool: Pool, calls: int, tool: str, **arguments: float) -> float:
    """How long that many calls of a tool take, all submitted at once."""
    began = time.perf_counter()
    futures = [pool.submit(tool, **arguments) for _ in range(calls)]
    for future in futures:
        future.result()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
