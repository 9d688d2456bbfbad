"""Scenario S1 as values: which cells there are, and what each of them showed. Plain data in, plain data out.

`cells` knows nothing of processes: it is given a function that serves one shape and one that measures one endpoint.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeVar

from benches.harness import Sheet
from benches.serve.load import Figures
from benches.table import figure

Answering = TypeVar("Answering")


@dataclass(frozen=True)
class Contestant:
    """A server of the grid: whether it has a setting for threads, and the endpoints that it can serve."""

    name: str
    has_threads: bool
    endpoints: tuple[str, ...]


@dataclass(frozen=True)
class Scenario:
    """Workers × threads for each contestant and endpoint."""

    contestants: tuple[Contestant, ...]
    workers: tuple[int, ...]
    threads: tuple[int, ...]
    endpoints: tuple[str, ...]
    seconds: int


@dataclass(frozen=True)
class Shape:
    """One start of one server. Threads of 0: it has no such setting."""

    contestant: Contestant
    workers: int
    threads: int


@dataclass(frozen=True)
class Cell:
    """What one endpoint did under one shape; figures, or why there are none."""

    contestant: str
    workers: int
    threads: int
    endpoint: str
    figures: Figures | None
    failure: str | None = None


def shapes(scenario: Scenario) -> Iterator[Shape]:
    """Contestants alternate within a size, so that what disturbs the machine disturbs neighbours alike."""
    for workers, threads in itertools.product(scenario.workers, scenario.threads):
        for contestant in scenario.contestants:
            if contestant.has_threads:
                yield Shape(contestant, workers, threads)
            elif threads == scenario.threads[0]:
                yield Shape(contestant, workers, 0)


def cells(
    scenario: Scenario,
    serve: Callable[[Shape], AbstractContextManager[Answering]],
    measure: Callable[[Answering, str, int], Figures],
) -> Iterator[Cell]:
    """Each cell as soon as it is measured. A shape that does not serve gives cells that say so; the rest goes on."""
    for shape in shapes(scenario):
        endpoints = [name for name in scenario.endpoints if name in shape.contestant.endpoints]
        done: list[str] = []
        try:
            with serve(shape) as answering:
                for endpoint in endpoints:
                    yield _cell(shape, endpoint, measure(answering, endpoint, scenario.seconds))
                    done.append(endpoint)
        except RuntimeError as error:
            failed = [endpoint for endpoint in endpoints if endpoint not in done]
            yield from (_cell(shape, endpoint, None, str(error)) for endpoint in failed)


def _cell(shape: Shape, endpoint: str, figures: Figures | None, failure: str | None = None) -> Cell:
    return Cell(shape.contestant.name, shape.workers, shape.threads, endpoint, figures, failure)


def sheets(scenario: Scenario, found: list[Cell]) -> list[Sheet]:
    """For each contestant and endpoint: workers down, threads across, in each cell requests a second and p50/p99."""
    pairs = itertools.product(scenario.contestants, scenario.endpoints)
    return [_sheet(scenario, who, endpoint, found) for who, endpoint in pairs if endpoint in who.endpoints]


def _sheet(scenario: Scenario, who: Contestant, endpoint: str, found: list[Cell]) -> Sheet:
    threads = scenario.threads if who.has_threads else (0,)
    shown = {
        (cell.workers, cell.threads): _shown(cell)
        for cell in found
        if (cell.contestant, cell.endpoint) == (who.name, endpoint)
    }
    lines = [
        [f"{workers} worker(s)", *(shown.get((workers, count), "–") for count in threads)]
        for workers in scenario.workers
    ]
    headings = ["", *(f"{count} thread(s)" if count else "its own threads" for count in threads)]
    return Sheet(f"{who.name}, {endpoint}: requests/s (p50/p99 ms)", headings, lines)


def _shown(cell: Cell) -> str:
    if cell.figures is None:
        return "failed"
    return f"{figure(cell.figures.rate)} ({figure(cell.figures.p50_ms)}/{figure(cell.figures.p99_ms)})"


def best(found: list[Cell], endpoint: str) -> list[Cell]:
    """Of each contestant the cell with the highest rate, the best contestant first."""
    measured = [cell for cell in found if cell.endpoint == endpoint and cell.figures]
    names = {cell.contestant for cell in measured}
    of_each = [max((cell for cell in measured if cell.contestant == name), key=_rate) for name in names]
    return sorted(of_each, key=_rate, reverse=True)


def _rate(cell: Cell) -> float:
    return cell.figures.rate if cell.figures else 0.0
