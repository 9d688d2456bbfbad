"""The work that the rows run: plain functions, so that the peers' workers load them without loading Clutch."""

import time


def echo(message: str) -> str:
    """Give back what came."""
    return message


def same(value: object) -> object:
    """Give back what came, of any type."""
    return value


def increment(number: int) -> int:
    """The trivial function of the `map` row."""
    return number + 1


def busy(seconds: float) -> None:
    """Use a CPU for so long."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def count_primes(limit: int) -> int:
    """How many primes lie below `limit`; loops only, so that threads share nothing but the interpreter."""
    count = 0
    for number in range(2, limit):
        for divisor in range(2, int(number**0.5) + 1):
            if number % divisor == 0:
                break
        else:
            count += 1
    return count
