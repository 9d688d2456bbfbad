"""A case of the matrix: bytes, and what may come of them.

Each case is followed by a canary, a request that must be run if and only if what came before it was understood to its
last byte. The verdict rests on what the app saw.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from benches.hostile.matrix.exchange import CANARY
from benches.hostile.seen import Outcome, Request

Wanted = Literal["refuse", "accept", "either"]
HOST = "h.example"


@dataclass(frozen=True)
class Case:
    """One thing to say over HTTP/1."""

    name: str
    said: str
    """In latin-1, without the canary."""
    wanted: Wanted
    """`refuse`: no app sees it whole, and nothing after it is run. `accept`: the app sees it as below, and the canary.
    `either`: one of the two; where it is taken, the connection may also be closed before the canary."""
    body: str | None = None
    """The one right reading of the body; none: any."""
    target: str | None = None
    canary_runs: bool = True
    """After it was accepted; false: the connection has to be closed then."""
    has: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Headers that the app is to see, with all values of that name."""

    @property
    def sent(self) -> bytes:
        canary = f"GET {CANARY} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n"
        return (self.said + canary).encode("latin-1")

    def complaint(self, outcome: Outcome) -> str | None:
        """What is wrong with this outcome."""
        if (extra := _strangers(outcome)) is not None:
            return extra
        refused = self._not_refused(outcome)
        if self.wanted == "refuse" or refused is None:
            return refused if self.wanted != "accept" else self._not_accepted(outcome)
        return self._not_accepted(outcome)

    def _not_refused(self, outcome: Outcome) -> str | None:
        """The app may have begun with a body that turned out to be wrong, if it was told so."""
        if outcome.whole:
            return f"the app saw {', '.join(map(str, outcome.whole))}"
        if any(status < 400 for status in outcome.statuses):
            return f"the client got {outcome.statuses}"
        return None

    def _not_accepted(self, outcome: Outcome) -> str | None:
        first, *others = outcome.whole or [None]
        if first is None or first.target == CANARY:
            return f"not accepted: {outcome}"
        if (wrong := self._misread(first)) is not None:
            return wrong
        ran = bool(others)
        if ran and not self.canary_runs:
            return "the request after it was run"
        if not ran and self.canary_runs and self.wanted == "accept":
            return f"the request after it was not run: {outcome}"
        return None

    def _misread(self, request: Request) -> str | None:
        if self.body is not None and request.body != self.body:
            return f"the app read the body {request.body!r}"
        if self.target is not None and request.target != self.target:
            return f"the app read the target {request.target!r}"
        for name, values in self.has:
            if request.values(name) != list(values):
                return f"the app read {name}: {request.values(name)}"
        return None


def _strangers(outcome: Outcome) -> str | None:
    """Requests that nobody has sent: at most the case's own and the canary, in this order."""
    targets = [request.target for request in outcome.requests]
    if len(targets) > 2 or any("smuggled" in target for target in targets) or targets[1:] not in ([], [CANARY]):
        return f"requests were split off: {', '.join(map(str, outcome.requests))}"
    return None
