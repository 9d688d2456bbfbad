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


def count_primes(limit: int) -> int:
    """How many primes lie below `limit`; trial division, so that it is pure-Python CPU work."""
    return sum(all(number % divisor for divisor in range(2, int(number**0.5) + 1)) for number in range(2, limit))
