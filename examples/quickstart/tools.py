"""Real work of four kinds: waiting on a socket, numpy products, pure-Python CPU work, text processing."""

import asyncio
import os
import re
import socket
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy

from clutch import tool

_QUESTION = b"ping\n"


@tool
def ask(path: str) -> str:
    """Ask a server on a Unix socket and wait for its answer, in blocking code."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(_QUESTION)
        return connection.recv(100).decode().strip()


@tool
async def ask_async(path: str) -> str:
    """The same in asyncio."""
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(_QUESTION)
    answer = await reader.readline()
    writer.close()
    return answer.decode().strip()


@tool
def products(size: int) -> float:
    """The trace of a product of two square matrices; numpy releases the GIL while it multiplies."""
    matrix = numpy.arange(size * size, dtype=float).reshape(size, size) / size**2
    return round(float(numpy.trace(matrix @ matrix.T)), 3)


@tool
def primes(below: int) -> int:
    """How many primes there are: CPU work in pure Python."""
    return sum(all(number % divisor for divisor in range(2, int(number**0.5) + 1)) for number in range(2, below))


@tool
def words(path: str, most: int = 3) -> list[tuple[str, int]]:
    """The most frequent words of a file."""
    found = re.findall(r"[a-z]+", Path(path).read_text(encoding="utf-8").lower())
    return Counter(found).most_common(most)


@tool
def headings(path: str) -> Iterator[str]:
    """The numbered headings of a text, one by one: a generator is a stream."""
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        if found := re.match(r"\s*(\d+\. [A-Z][\w ]+)\.", line):
            yield found[1]


@tool
def ticks(seconds: float) -> Iterator[int]:
    """The pid of this worker, again and again, without end."""
    while True:
        yield os.getpid()
        time.sleep(seconds)
