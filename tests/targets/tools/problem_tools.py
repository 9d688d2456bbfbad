"""Tools with errors of their own; the target of test_http_problems.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import date
from typing import Any

import clutch
from clutch import HttpProblem, tool


class NoUser(HttpProblem):
    """There is no such user.

    More about it.
    """

    status = 404
    type = "urn:shop:no-user"
    title = "No such user"

    def __init__(self, nr: int) -> None:
        super().__init__(detail=f"no user {nr}", user=nr)


class NoFemaleUser(NoUser):
    type = "urn:shop:no-user:f"


@tool(raises=[NoUser, HttpProblem(409, "urn:shop:taken", title="The name is taken"), HttpProblem(503)])
def user(nr: int) -> str:
    raise NoUser(nr)


@tool(name="user.async")
async def user_async(nr: int) -> str:
    raise NoFemaleUser(nr)


@tool
def users(count: int) -> Iterator[dict[str, Any]]:
    yield from ({"error": f"row {nr}"} for nr in range(count))
    raise NoUser(count)


@tool
async def users_async(count: int) -> AsyncIterator[int]:
    for nr in range(count):
        yield nr
    raise NoUser(count)


@tool
def problem(status: int, members: dict[str, Any]) -> None:
    raise HttpProblem(status, "urn:shop:any", "of this call", **members)


@tool
def on_a_day() -> None:
    raise HttpProblem(422, detail="not then", day=date(2026, 1, 2), of={1: (2, 3)})


@tool
def caught() -> str:
    try:
        raise clutch.HttpProblem(404)
    except HttpProblem as error:
        return f"{error.status} {error}"


@tool
def spoilt() -> None:
    error = HttpProblem(404)
    error.status = 200
    raise error


@tool
def crash() -> None:
    raise HttpProblem(502, "urn:shop:down", "the shop is down")
