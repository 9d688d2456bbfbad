"""A target with every kind of parameter and result that a schema has to say."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any, Literal

import pydantic
from pydantic import Field

from clutch import tool


@dataclasses.dataclass
class Line:
    name: str
    price: float = 1.0


class Node(pydantic.BaseModel):
    """A node of a tree."""

    value: int
    children: list[Node] = []


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class Opaque:
    """Nothing that JSON or pydantic knows."""


@tool
def bill(
    lines: list[Line], *, zeal: Annotated[float, Field(ge=0, le=1)] = 0.5, at: datetime.date | None = None
) -> dict[str, decimal.Decimal]:
    """Sums an order.

    With *zeal* as its tax.
    """
    total = sum(line.price for line in lines) * (1 + zeal)
    return {"total": decimal.Decimal(str(total))}


@tool
def depth(node: Node) -> int:
    """How deep a tree is."""
    return 1 + max(map(depth, node.children), default=0)


@tool
def graft(node: Node, onto: Node) -> Node:
    return Node(value=onto.value, children=[*onto.children, node])


@tool
def feed(pet: Annotated[Cat | Dog, Field(discriminator="kind")], color: Color = Color.RED) -> str:
    return f"{pet.kind}: {color.value}"


@tool
def numbers(n: int) -> Iterator[int]:
    """Counts up."""
    yield from range(n)


@tool
async def later(n: int = 2) -> AsyncIterator[Line]:
    for number in range(n):
        yield Line(str(number))


@tool
async def turned(data: bytes, limit: float = float("inf")) -> bytes:
    return data[::-1][: int(min(limit, len(data)))]


@tool
def anything(value, *, default=None, **more: Any):
    return value


@tool
def opaque(value: Opaque) -> Opaque:
    return value


@tool
def by_place(value: int, /) -> int:
    return value
