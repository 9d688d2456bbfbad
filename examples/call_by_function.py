"""Run any function in a pool: what ProcessPoolExecutor does, with lambdas and closures too.

Run: python examples/call_by_function.py
"""

import os
from concurrent.futures import as_completed

from clutch import Pool


def square(number: int) -> int:
    return number * number


def where_am_i() -> int:
    return os.getpid()


def main() -> None:
    with Pool(max_workers=2) as pool:
        print("call:", pool.call(square, 12))
        print("map:", list(pool.map(square, range(6))))

        futures = {pool.submit(square, number): number for number in (3, 4)}
        print("as_completed:", sorted((futures[done], done.result()) for done in as_completed(futures)))

        factor = 10
        print("a lambda:", pool.call(lambda number: number * factor, 7))
        print("in another process:", pool.call(where_am_i) != os.getpid())

        try:
            pool.call(divmod, 1, 0)
        except ZeroDivisionError as problem:
            print("the original exception:", type(problem).__name__)


if __name__ == "__main__":
    main()
