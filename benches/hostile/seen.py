"""What became of a connection: what the app saw of it, and what the client got."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")


@dataclass(frozen=True)
class Request:
    """One request as the app saw it; `body` is none when it was broken off."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: str | None

    def values(self, name: str) -> list[str]:
        return [value for found, value in self.headers if found == name]

    def __str__(self) -> str:
        body = "broken off" if self.body is None else f"body {self.body[:40]!r}"
        return f"{self.method} {self.target[:60]} ({body})"


@dataclass
class Outcome:
    """What one client said came to this."""

    requests: list[Request] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    closed: bool = True
    """By the server; else the client gave up waiting."""

    @property
    def whole(self) -> list[Request]:
        return [request for request in self.requests if request.body is not None]

    def __str__(self) -> str:
        ended = "closed" if self.closed else "left waiting"
        return f"app saw {list(map(str, self.requests))}, client got {self.statuses}, {ended}"


def statuses(received: bytes) -> list[int]:
    """Of all final responses on an HTTP/1 connection."""
    return [status for found in _STATUS.findall(received) if (status := int(found)) >= 200]


def requests_by_client(record: Path) -> dict[str, list[Request]]:
    """Everything the app saw, in its order."""
    begun, bodies = {}, {}
    for line in record.read_text().splitlines() if record.exists() else []:
        entry = json.loads(line)
        if "client" in entry:
            begun[entry["key"]] = entry
        else:
            bodies[entry["key"]] = entry["body"]
    found: dict[str, list[Request]] = defaultdict(list)
    for key, entry in begun.items():
        headers = [(name, value) for name, value in entry["headers"]]
        request = Request(entry["method"], entry["target"], headers, bodies.get(key))
        found[entry["client"].partition(":")[0]].append(request)
    return found
