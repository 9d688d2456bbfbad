"""The service manager: what it is told of a dispatcher's life (`Type=notify`, `WatchdogSec=`), and the sockets that it
hands over.

Without one, nothing happens.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable

from clutch._dispatcher import logs
from clutch._dispatcher.observer import Observer
from clutch.errors import ConfigError

FIRST_HANDED_OVER = 3
HANDED_OVER_MAX = 256


class Notifier(Observer):
    """Speaks to the datagram socket that `NOTIFY_SOCKET` names; the variable is taken, so that no worker speaks too."""

    def __init__(self, failed: Callable[[ConfigError], None]) -> None:
        """`failed`: hears of a pool that can never be ready."""
        self._address = os.environ.pop("NOTIFY_SOCKET", None)
        self.failed = failed  # type: ignore[method-assign]

    def ready(self, status: str) -> None:
        self.say(f"READY=1\nSTATUS={status}")

    def reloading(self) -> None:
        self.say(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}\nSTATUS=reloading")

    def stopping(self) -> None:
        self.say("STOPPING=1\nSTATUS=stopping")

    def status(self, text: str) -> None:
        self.say(f"STATUS={text}")

    def say(self, text: str) -> None:
        if self._address is None:
            return
        # "@name": of the abstract namespace, which has no files.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as notify:
                notify.sendto(text.encode(), address)
        except OSError as error:
            logs.log.debug("cannot notify the service manager: %s", error)


class Watchdog:
    """Tells the service manager at half of its interval that the dispatcher is not stuck. Silent without
    `WATCHDOG_USEC`, which is taken, so that no worker speaks too."""

    def __init__(self, say: Callable[[str], None], look: Callable[[], object]) -> None:
        """`look` returns while the dispatcher works, and hangs with it."""
        microseconds, pid = os.environ.pop("WATCHDOG_USEC", ""), os.environ.pop("WATCHDOG_PID", "")
        is_meant = microseconds.isdecimal() and pid in ("", str(os.getpid()))
        self.interval = int(microseconds) / 2e6 if is_meant else 0.0
        self._say, self._look = say, look

    def start(self) -> None:
        if self.interval:
            threading.Thread(target=self._tell, name="clutch-watchdog", daemon=True).start()

    def _tell(self) -> None:
        while True:
            self._look()
            self._say("WATCHDOG=1")
            time.sleep(self.interval)


def take_listening() -> tuple[int, ...]:
    """The descriptors of `LISTEN_FDS`, if they are meant for this process.

    The variables are taken and the descriptors are closed on exec: no worker has them by accident.
    """
    pid, number = os.environ.pop("LISTEN_PID", ""), os.environ.pop("LISTEN_FDS", "")
    os.environ.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()) or not number.isdecimal() or int(number) > HANDED_OVER_MAX:
        return ()
    descriptors = tuple(range(FIRST_HANDED_OVER, FIRST_HANDED_OVER + int(number)))
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return descriptors
