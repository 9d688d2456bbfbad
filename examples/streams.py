"""A generator is a stream: values arrive one by one, the producer waits for a slow reader.

Run: python examples/streams.py
"""

from itertools import islice

from clutch import Pool


def main() -> None:
    with Pool("shop.tools", workers=1) as pool:
        for number in pool.stream("countdown", n=3):
            print("countdown:", number)

        endless = pool.stream("countdown", n=10_000_000)
        print("only the first two:", list(islice(endless, 2)))
        endless.close()  # the generator in the worker is closed, its slot is free

        print("an async generator:", list(pool.stream("receipts", first=7, count=2)))


if __name__ == "__main__":
    main()
