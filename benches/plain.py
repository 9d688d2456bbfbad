"""The work that the rows run: plain functions, so that the peers' workers load them without loading Clutch."""


def echo(message: str) -> str:
    """Give back what came."""
    return message


def same(value: object) -> object:
    """Give back what came, of any type."""
    return value


def increment(number: int) -> int:
    """The trivial function of the `map` row."""
    return number + 1


def spin(steps: int) -> int:
    """Work that takes as long as it has steps, and uses a CPU all the time."""
    total = 0
    for step in range(steps):
        total ^= step
    return total


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
