"""Runs the cases against a server and judges what its app saw."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from benches.hostile.matrix import exchange, exchange2, http1_cases, http2_cases
from benches.hostile.seen import Outcome, statuses
from benches.hostile.server import Server
from benches.hostile.servers import recording

_AT_A_TIME = 24


def complaints_over_http1(server: Server) -> dict[str, str]:
    """What is wrong, by the names of the cases."""
    cases = http1_cases.all_cases()
    found = zip(cases, outcomes(server, [case.sent for case in cases]), strict=True)
    complaints = {case.name: case.complaint(outcome) for case, outcome in found}
    return {name: complaint for name, complaint in complaints.items() if complaint is not None}


def outcomes(server: Server, said: Sequence[bytes]) -> list[Outcome]:
    """Each on a connection of its own over HTTP/1."""

    def ask(numbered: tuple[int, bytes]) -> tuple[bytes, bool]:
        nr, data = numbered
        return exchange.say(port, exchange.address(nr), [data])

    with recording(server) as (port, seen), ThreadPoolExecutor(_AT_A_TIME) as clients:
        answers = list(clients.map(ask, enumerate(said)))
    return [
        Outcome(seen().get(exchange.address(nr), []), statuses(received), closed)
        for nr, (received, closed) in enumerate(answers)
    ]


def complaints_over_http2(server: Server) -> dict[str, str]:
    """The same over HTTP/2 without TLS."""
    cases = http2_cases.all_cases()

    def ask(numbered: tuple[int, http2_cases.Case2]) -> tuple[list[int], bool]:
        nr, case = numbered
        return exchange2.ask(port, exchange.address(nr), case)

    with recording(server) as (port, seen), ThreadPoolExecutor(_AT_A_TIME) as clients:
        answers = list(clients.map(ask, enumerate(cases)))
    found = {}
    for nr, (case, (answered, closed)) in enumerate(zip(cases, answers, strict=True)):
        outcome = Outcome(seen().get(exchange.address(nr), []), answered, closed)
        if (complaint := case.complaint(outcome)) is not None:
            found[case.name] = complaint
    return found
