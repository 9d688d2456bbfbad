"""What is broadcast to the node of an app: remote control, and tasks of broadcast queues. A node that comes in the
place of another listens while that one still answers, and says so by a broadcast of its own: what was sent before it,
the other carries out, and what comes later this one, after the other has told what it has heard.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import time
from collections import deque
from typing import Any

from celery.worker.pidbox import Pidbox

FOLLOWED_SECONDS = 20.0
"""Longest time that a node goes on with what was broadcast before its successor listened."""
SUBSCRIBED_SECONDS = 5.0
"""Longest wait for the broker to say that it tells a node of broadcasts."""
HEARD_MAX, HEARD_BYTES_MAX = 5000, 1024
"""Broadcasts that a node tells its successor of, the last ones, and the longest command that it passes on."""
OF_THE_NODE = {
    "add_consumer",
    "cancel_consumer",
    "disable_events",
    "enable_events",
    "rate_limit",
    "revoke",
    "revoke_by_stamped_headers",
    "time_limit",
}
"""Commands that change the node, and not the pool: its successor carries them out too."""
DRAIN_SECONDS = 1.0
"""Longest wait for one broadcast."""


class Box(Pidbox):
    """Where remote control comes to. Knows what runs when a command comes, whatever it asks for. Hears none if the app
    says so."""

    def __init__(self, fleet: Any) -> None:
        super().__init__(fleet.consumer)
        self.fleet = fleet
        self.is_wanted = fleet.app.conf.worker_enable_remote_control

    def listen(self) -> None:
        if self.is_wanted:
            self.start(self.fleet.consumer)
        else:
            channel = self.fleet.consumer.connection.channel()
            self.fleet.hear_broadcasts(channel)
            subscribe(channel)

    def start(self, c: Any) -> None:
        """On one channel with the other broadcasts, which come in their order."""
        super().start(c)
        self.fleet.hear_broadcasts(self.node.channel)
        subscribe(self.node.channel)

    def announce(self) -> None:
        """Tells the node before that this one listens."""
        heard = self.fleet.heard
        self.fleet.app.control.broadcast("follow", {"by": heard.token}, destination=[heard.place])

    def follow(self, before: dict[str, Any]) -> None:
        """Takes over from the node before: what it has heard is not heard again."""
        self.fleet.heard.follow(before["heard"])
        if not self.is_wanted:
            return
        box: Any = self.consumer
        for queue in box.queues:  # it took its name with it
            queue.declare()
        for at, _, command in before["heard"]:
            if command is not None and at >= before["since"]:
                with contextlib.suppress(Exception):  # as it was told then
                    self.node.dispatch(**command)

    def hear_out(self, line: Any) -> None:
        """Hears what was broadcast before the successor listened."""
        until = time.monotonic() + FOLLOWED_SECONDS
        while not self.fleet.heard.is_over and time.monotonic() < until:
            if not drain(line, DRAIN_SECONDS if self.is_wanted else 0) and not self.is_wanted:
                return

    def leave(self) -> None:
        if self.is_wanted:
            self.shutdown(self.fleet.consumer)

    def on_message(self, body: Any, message: Any) -> None:
        if self.fleet.heard.is_new(message.delivery_tag, body):
            self.fleet.look()
            super().on_message(body, message)
            self.fleet.pass_on()


def drain(line: Any, seconds: float) -> bool:
    """Hears what comes within this time. Returns whether anything has."""
    try:
        line.drain_events(timeout=seconds)
    except TimeoutError:
        return False
    return True


def subscribe(channel: Any) -> None:
    """Lets the broker tell a channel of its broadcasts from now on; kombu does when it waits for the first one."""
    if channel.active_fanout_queues:
        channel.connection.cycle._register_LISTEN(channel)
        # The first word on this connection is that it is so.
        select.select([channel.subclient.connection._sock], [], [], SUBSCRIBED_SECONDS)


class Heard:
    """Broadcasts that a node has heard, for the one that comes in its place."""

    def __init__(self, place: str) -> None:
        """`place`: of the node, in which one follows another. No peer has this name."""
        self.place = place
        self.token = os.urandom(8).hex()
        self.is_over = False
        """Another node hears what comes."""
        self._messages: deque[tuple[float, str, dict[str, Any] | None]] = deque(maxlen=HEARD_MAX)
        self._before: set[str] = set()

    def is_new(self, tag: str, command: Any = None) -> bool:
        """Notes it; false: the node before has heard it, or the one that comes does."""
        if isinstance(command, dict) and command.get("destination") == [self.place]:
            self.is_over |= command["arguments"]["by"] != self.token
            return False
        if tag in self._before or self.is_over:
            return False
        self._messages.append((time.time(), tag, for_successor(command)))
        return True

    def told(self) -> list[tuple[float, str, dict[str, Any] | None]]:
        """Of each: when, its tag, and what the successor is to carry out too."""
        return list(self._messages)

    def follow(self, before: list[Any]) -> None:
        self._before = {tag for _, tag, _ in before}


def for_successor(command: Any) -> dict[str, Any] | None:
    """As much of a command as changes the node itself; nobody waits for an answer, and tasks are ended once."""
    if not isinstance(command, dict) or command.get("method") not in OF_THE_NODE:
        return None
    arguments = {name: value for name, value in (command.get("arguments") or {}).items() if name != "terminate"}
    kept = {"method": command["method"], "arguments": arguments}
    with contextlib.suppress(TypeError, ValueError):
        if len(json.dumps(kept)) <= HEARD_BYTES_MAX:
            return kept
    return None
