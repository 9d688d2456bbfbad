#!/usr/bin/env bash
# A fork that ends may make the asyncio event loop of its parent deaf to other threads and to signals; from CPython 3.12
# on a garbage collection in the fork may, too.
#
# Seen: CPython 3.11.7, 3.12.1, 3.13.0, 3.14.10 and 3.15.2: a process makes a loop and forks while the loop rests. If
# the child closes its copy, or leaves by sys.exit(0) and the loop is held by a variable of the main module, the parent
# learns of call_soon_threadsafe and of signals with add_signal_handler only when a timer or a socket wakes it, or
# never. In 3.12 and newer `gc.collect()` in the child is enough if nothing but asyncio.set_event_loop holds the loop.
#
# Why: a loop is woken through a pair of sockets that it watches with epoll, and a fork has the same epoll, not a copy
# of it. `close`, and thus the `__del__` of a loop, first takes the socket out of the epoll, which takes it out for the
# parent as well. Since 3.12 a child forgets the loop that was set, for safety, and then it is nobody's and may be
# collected.
#
# Fails if this changes.
set -euo pipefail

find_python() {
    local candidate
    for candidate in $(type -ap "python$1" || true) /opt/*/usr/bin/"python$1" \
        ~/.local/share/uv/python/cpython-"$1"*/bin/"python$1"; do
        if [ -x "$candidate" ] && "$candidate" -c 'import asyncio' 2>/dev/null; then echo "$candidate"; return; fi
    done
    return 1
}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/hears.py" <<'PROGRAM'
import asyncio
import gc
import os
import selectors
import signal
import sys
import threading

NEW = sys.version_info >= (3, 12)
CHILDREN = {  # what the child does before os._exit, and whether the parent is deaf then
    "nothing": (lambda: None, False),
    "loop.close()": (lambda: loop.close(), True),
    "sys.exit(0)": (lambda: sys.exit(0), True),
    "gc.collect()": (gc.collect, NEW),
}


def count_watched():
    """How many files the one epoll of this process watches."""
    for number in os.listdir("/proc/self/fd"):
        try:
            if "eventpoll" not in os.readlink(f"/proc/self/fd/{number}"):
                continue
        except FileNotFoundError:  # was open for the listing only
            continue
        with open(f"/proc/self/fdinfo/{number}") as lines:
            return sum(line.startswith("tfd:") for line in lines)


class Selector(selectors.EpollSelector):
    waits = threading.Event()

    def select(self, timeout=None):
        if timeout is None or timeout > 0:
            self.waits.set()
        return super().select(timeout)


async def is_woken(send, timer_s):
    """Whether what `send` does in another thread while the loop waits wakes it before a timer does."""
    loop = asyncio.get_running_loop()
    woken = asyncio.Event()
    woken_at = []

    def wake():
        woken_at.append(loop.time())
        woken.set()

    def send_while_it_waits():
        Selector.waits.wait()
        send(loop, wake)

    loop.add_signal_handler(signal.SIGUSR1, wake)
    timer = loop.call_later(timer_s, woken.set)
    Selector.waits.clear()
    thread = threading.Thread(target=send_while_it_waits)
    thread.start()
    await woken.wait()
    timer.cancel()
    thread.join()
    return bool(woken_at) and woken_at[0] < timer.when()


def from_a_thread(loop, wake):
    loop.call_soon_threadsafe(wake)


def by_a_signal(loop, wake):
    os.kill(os.getpid(), signal.SIGUSR1)


def observe(timer_s):
    run = (loop or asyncio.get_event_loop()).run_until_complete
    return count_watched(), run(is_woken(from_a_thread, timer_s)), run(is_woken(by_a_signal, timer_s))


name = sys.argv[1]
act, deaf = CHILDREN[name]
loop = asyncio.SelectorEventLoop(Selector())
if name == "gc.collect()":
    asyncio.set_event_loop(loop)
    loop = None
before = observe(60)
pid = os.fork()
if pid == 0:
    act()
    os._exit(0)
os.waitpid(pid, 0)
after = observe(2 if deaf else 60)
version = sys.version.split()[0]
print(f"{version}, child: {name}; watched, woken by a thread, by a signal: {before}, then {after}")
assert before == (1, True, True)
assert after == ((0, False, False) if deaf else before)
PROGRAM
run() {
    local child
    for child in "nothing" "loop.close()" "sys.exit(0)" "gc.collect()"; do
        "$1" -W ignore "$folder/hears.py" "$child"
    done
}
run python3
for series in 3.15 3.14 3.13 3.12; do
    if other=$(find_python "$series"); then run "$other"; break; fi
done
