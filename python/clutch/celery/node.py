"""`python -m clutch.celery.node TARGET`: a Celery app as one node of its fleet, in a process of its own beside the
dispatcher, which imports nobody's code. It answers remote control, sends the events of a worker and listens to those of
its peers, by Celery's own code; what a command changes it passes on to the dispatcher (its control socket) and to the
workers (a text in the store).

Prints what the dispatcher has to know of the app, as a line of JSON (`null`: the target has no app; or what is wrong
with the app), then reads a line with its part: the control socket. It goes when it reads more, for good, or when its
standard input ends, and another comes in its place.

One that comes in the place of another listens while that one still answers. It says so by a broadcast, up to which the
other carries out what comes, and prints a line; then it reads what the other has heard, in a line of JSON that the
other prints when it goes. So no command is lost between the two, and none is carried out twice.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from clutch.control import client
from clutch.errors import ClutchError, ConfigError

REVOKED_SECONDS = 10800
"""How long it is known that a task was revoked, as Celery's workers know it."""
SETTINGS_SECONDS = 10800
"""How long it is known what a node has told its workers, after it has gone."""
WAIT_SECONDS = 1.0
"""Longest wait of the node for its broker, in which it does not see that it is over."""
LOOK_SECONDS = 5.0
"""Interval at which it looks at what runs while nobody asks."""
ATTEMPTS = re.compile(r'^clutch_jobs_attempts_total\{.*tool="(.+?)",outcome="(\w+)"\} (\d+)', re.MULTILINE)
"""What the dispatcher has counted."""
RAN = "completed", "dead", "postponed"
"""Outcomes of a task that has run. Of what was ended from without another attempt tells."""
TERMINATED_SECONDS = 5.0
"""Longest wait for a word of the dispatcher."""


def describe(asked: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
    """The app of a target, and what the dispatcher has to know of it. `asked`: what the dispatcher has told."""
    from clutch._worker.image import find_target

    _, found = find_target(asked["target"])
    if "celery" not in sys.modules:
        return None
    from clutch.celery import apps

    app = apps.find(found)
    if app is None:
        return None
    node = apps.node_name(asked["name"])
    apps.prepare(app, node)
    told = {**apps.told(app, node, asked["queues"]), "place": place_of(node, asked)}
    connection: Any = app.connection_for_write()
    # Before the first task, what the workers are to know of it. A broker that is away is waited for by who needs it.
    with contextlib.suppress(*apps.errors_of(connection)), connection:
        queues = [*told["queues"], *told["added"]]
        apps.declare(app, queues)
        store = Store(told["place"])
        store.use(connection.default_channel)
        store.tell_workers(settings_of(app, queues, bool(app.conf.worker_send_task_events)))
    return app, told


def place_of(node: str, asked: dict[str, Any]) -> str:
    """What a node and its workers know each other by. Several nodes may have one name, as those of a host without
    `--node`."""
    return f"{node} {asked['token']}"


def settings_of(app: Any, queues: Iterable[str], sends_events: bool) -> dict[str, Any]:
    """What workers and the store have to know, as far as remote control may change it."""
    from celery.utils.time import rate
    from celery.worker import state

    rates = {name: rate(task.rate_limit) for name, task in app.tasks.items() if task.rate_limit}
    return {
        "events": sends_events,
        "queues": list(queues),
        "intervals": {}
        if app.conf.worker_disable_rate_limits
        else {name: 1000 / per_second for name, per_second in rates.items() if per_second},
        "limits": {
            name: [task.soft_time_limit, task.time_limit]
            for name, task in app.tasks.items()
            if "time_limit" in vars(task) or "soft_time_limit" in vars(task)
        },
        "stamps": {name: list(values) for name, values in state.revoked_stamps.items()},
        "late": sorted(name for name, task in app.tasks.items() if task.acks_late),
    }


def main() -> None:
    answer = os.dup(1)
    os.dup2(2, 1)  # what the target prints is no answer
    asked = json.loads(sys.argv[1])
    sys.path[:0] = asked["sys_path"]
    found = None
    try:
        found = describe(asked)
        told: Any = found and found[1]
    except ConfigError as error:
        told = {"error": str(error)}
    except Exception as error:
        from clutch._worker.image import not_imported

        told = {"error": not_imported(f"target {asked['target']!r}", error)}
    dispatcher = Lines(answer)
    dispatcher.say(told)
    if found is None:
        return
    part = dispatcher.read()
    if part is not None:  # or else the dispatcher is over before it has begun
        # The dispatcher tells when it is over: it outlives the signal of a terminal or a service manager.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        control = None if part["control"] is None else Path(part["control"])
        fleet = Fleet(
            found[0],
            told["node"],
            [*told["queues"], *told["added"]],
            Dispatcher(control, part["pid"], part["pool"]),
            told["place"],
        )
        serve(fleet, dispatcher if part["follows"] else None)
        dispatcher.say(fleet.heard.told())


class Lines:
    """What the node and the dispatcher say to each other: lines of JSON."""

    def __init__(self, answer: int) -> None:
        """`answer`: the descriptor that the dispatcher reads."""
        self._answer = open(answer, "w", encoding="utf-8")  # noqa: SIM115 - as long as the process
        # Unbuffered: what comes after a line is left where `is_over` sees it.
        self._input = open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115

    def say(self, what: Any) -> None:
        with contextlib.suppress(OSError):  # nobody listens any more
            self._answer.write(json.dumps(what) + "\n")
            self._answer.flush()

    def ask(self, what: Any) -> Any:
        self.say(what)
        return self.read()

    def read(self) -> Any:
        """None: it is over."""
        line = self._input.readline()
        return json.loads(line) if line.startswith(b"{") else None


# ---- the node


def serve(fleet: Fleet, follows: Lines | None) -> None:
    """Is the node until the dispatcher is over. `follows`: another one is the node until this one listens."""
    from celery import signals
    from celery.worker import state
    from celery.worker.control import Panel

    from clutch.celery import apps
    from clutch.celery.broadcasts import Box, drain

    app = fleet.app
    connection: Any = app.connection_for_read()
    signals.worker_init.send(sender=fleet.controller)

    def autoscale(_state: Any, **given: int) -> dict[str, str]:
        """Sets a range of workers, which Clutch's own scaling follows."""
        least = given.get("min") or 1
        most = given.get("max") or least
        fleet.dispatcher.scale(least, most)
        return {"ok": f"autoscale now max={most} min={least}"}

    Panel.data["autoscale"] = autoscale  # Celery's asks for its own

    box = Box(fleet)
    while not is_over(0):
        try:
            with connection.clone() as line:
                apps.declare(app, fleet.names)
                fleet.connect(line)
                box.listen()
                fleet.meet(line, is_heard=follows is None)
                if follows is not None:
                    box.announce()
                    before, follows = follows.ask("listening"), None
                    if before is None:
                        break
                    box.follow(before)
                fleet.start()
                while not (fleet.heard.is_over or is_over(0)):
                    drain(line, WAIT_SECONDS)
                    fleet.look_at_times()
                end(fleet, box, line)
                break
        except apps.errors_of(connection):
            if is_over(WAIT_SECONDS):
                break
        except SystemExit:  # Celery's WorkerShutdown: somebody has asked for it
            fleet.dispatcher.stop()
    state.should_stop = True


def is_over(seconds: float) -> bool:
    """Whether the dispatcher is gone within this time."""
    return bool(select.select([0], [], [], seconds)[0])


def end(fleet: Fleet, box: Any, line: Any) -> None:
    word = b"f" if fleet.heard.is_over else os.read(0, 1)
    if word == b"f":  # another follows
        box.hear_out(line)
    fleet.stop()
    if word == b"l":  # nobody does
        fleet.forget_broadcasts(line.channel())
    box.leave()


class Dispatcher:
    """The dispatcher, by its control socket, if it has one."""

    def __init__(self, control: Path | None, pid: int, pool: str) -> None:
        self.control = control
        self.pid = pid
        self.name = pool

    def pool(self) -> dict[str, Any]:
        """The pool as `clutch ps` shows it; empty while nobody answers."""
        if self.control is None:
            return {}
        try:
            pools = client.get(self.control, "/pools", TERMINATED_SECONDS)["pools"]
        except ClutchError:
            return {}
        return next((pool for pool in pools if pool["name"] == self.name), {})

    def totals(self) -> Counter[str]:
        """How many times each task has run; empty while nobody answers."""
        counted: Counter[str] = Counter()
        if self.control is not None:
            with contextlib.suppress(ClutchError):
                page = client.get_text(self.control, "/metrics", TERMINATED_SECONDS)
                for name, outcome, count in ATTEMPTS.findall(page):
                    counted[name] += int(count) if outcome in RAN else 0
        return counted

    def _order(self, path: str, seconds: float | None, **said: Any) -> None:
        """Raises ClutchError where it cannot be carried out, which whoever has asked is told."""
        if self.control is None:
            raise ClutchError("this node has no control socket (`--control off`), and cannot do it")
        client.post(self.control, path, seconds, **said)

    def running(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Workers with what runs in them."""
        for worker in self.pool().get("workers", ()):
            for call in worker.get("running") or ():
                yield worker, call

    def cancel(self, task_id: str) -> None:
        # A client may give an id twice: the second is `ID#2`.
        is_one = re.compile(rf"{re.escape(task_id)}(#\d+)?").fullmatch
        for _, call in self.running():
            if call["job"] and is_one(call["job"]):
                self._order(f"/calls/{call['id']}/cancel", TERMINATED_SECONDS, pool=self.name)

    def grow(self, by: int) -> None:
        count = len(self.pool().get("workers", ())) + by
        self.scale(count, count)

    def scale(self, least: int, most: int) -> None:
        self._order(client.of_pool(self.name, "scale"), TERMINATED_SECONDS, min=least, max=most)

    def reload(self) -> None:
        """Begins it: what runs has its time to end, in which others have something to ask."""

        def go_on() -> None:
            with contextlib.suppress(ClutchError):  # the dispatcher has logged it
                self._order(client.of_pool(self.name, "reload"), None)

        threading.Thread(target=go_on, name="clutch-reload", daemon=True).start()

    def stop(self) -> None:
        with contextlib.suppress(ClutchError):
            self._order("/stop", TERMINATED_SECONDS)


class Slots:
    """The pool of the node, as commands and Celery's requests look at it."""

    is_green = False

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.dispatcher = dispatcher

    @property
    def num_processes(self) -> int:
        return sum(worker.get("slots", 1) for worker in self.dispatcher.pool().get("workers", ())) or 1

    def apply_async(self, *_: Any, **__: Any) -> None:
        """Nothing runs here."""

    def grow(self, n: int = 1) -> None:
        self.dispatcher.grow(n)

    def shrink(self, n: int = 1) -> None:
        self.dispatcher.grow(-n)

    def terminate_job(self, _pid: int, _signal: Any = None) -> None:
        """Requests are ended by their ids."""


class Store:
    """What the node and the workers share, beside kombu's keys."""

    def __init__(self, place: str) -> None:
        self._settings = self.key(f"settings:{place}")
        self._client: Any = None

    def use(self, channel: Any) -> None:
        self._client = channel.client

    def key(self, name: str) -> str:
        return f"clutch.celery:{name}"

    def revoke(self, ids: Iterable[str]) -> None:
        until = time.time() + REVOKED_SECONDS
        named = dict.fromkeys(ids, until)
        if named:
            self._client.zadd(self.key("revoked"), named)
            self._client.zremrangebyscore(self.key("revoked"), "-inf", time.time())
            self._client.expire(self.key("revoked"), REVOKED_SECONDS)

    def tell_workers(self, settings: dict[str, Any]) -> None:
        self._client.set(self._settings, json.dumps(settings), ex=SETTINGS_SECONDS)

    def has_told(self) -> bool:
        """Whether the broker still knows what the workers are told. It goes on knowing it for a while."""
        return bool(self._client.expire(self._settings, SETTINGS_SECONDS))

    def held(self, pid: int) -> Iterator[tuple[str, dict[str, Any]]]:
        """Messages that the runners of this process have, each with its task's id."""
        for runner in map(text, self._client.hkeys(self.key("renewals"))):
            if runner.split(":")[:2] == [os.uname().nodename, str(pid)]:
                yield from self._messages(self._client.hkeys(self.key(f"held:{runner}")))

    def scheduled(self) -> Iterator[tuple[str, dict[str, Any]]]:
        yield from self._messages(self._client.zrange(self.key("scheduled"), 0, 999))

    def _messages(self, tags: list[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Leaves out those that do not say which task they are: whoever runs them tells what is wrong with them."""
        for kept in self._client.hmget("unacked", tags) if tags else ():
            with contextlib.suppress(ValueError, LookupError, TypeError, RecursionError):
                message = json.loads(kept)[0]
                task_id = message["headers"]["id"]
                if isinstance(task_id, str):
                    yield task_id, message


def text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else value


class Fleet:
    """The node among its peers."""

    def __init__(self, app: Any, node: str, queues: list[str], dispatcher: Dispatcher, place: str) -> None:
        from celery.utils.timer2 import Timer
        from celery.worker import state

        from clutch.celery.broadcasts import Heard
        from clutch.celery.standin import Channel, Controller, Standin

        self.app = app
        self.dispatcher = dispatcher
        self.store = Store(place)
        self.started_at = time.time()
        self.told: dict[str, Any] = {}
        self.state = state
        self.controller: Any = Controller()
        self.controller.hostname = node
        self.controller.app = app
        self.controller.stats = self.stats
        self.controller.reload = lambda *_, **__: dispatcher.reload()
        self.slots = Slots(dispatcher)
        self.timer = Timer()
        consumer: Any = Standin(app, node, self.slots, Waits(self.timer), self.controller, Channel())
        self.consumer = consumer
        consumer.pid = os.getpid()
        consumer.reset_rate_limits = lambda: None
        consumer._update_prefetch_count = lambda _n=0: None
        self.names = queues
        self.heard = Heard(place)
        known = app.amqp.queues
        self.queues = {name: known[name] for name in queues}
        consumer.task_consumer = SimpleNamespace(queues=list(self.queues.values()))
        consumer.add_task_queue = self.add_queue
        consumer.cancel_task_queue = self.cancel_queue
        self.heart: Any = None
        self.was_ready = False
        self.beside: Any = app.connection_for_write()
        self.looked_at = 0.0
        self.revoked: set[str] = set()
        self.requests: dict[str, Any] = {}
        self.task_events = bool(app.conf.worker_send_task_events)

    # ---- its life

    def connect(self, connection: Any) -> None:
        if self.heart is not None:  # of the connection before, which was lost
            self.timer.cancel(self.heart.tref)
            self.heart = None
            self.consumer.event_dispatcher.connection.release()
        self.consumer.connection = connection
        # One of its own: what waits for messages has an answer to come.
        self.beside.release()
        self.beside = self.app.connection_for_write()
        self.store.use(self.beside.default_channel)
        self.consumer.event_dispatcher = self.app.events.Dispatcher(
            self.app.connection_for_write(),
            hostname=self.consumer.hostname,
            enabled=True,
            groups=None if self.task_events else ["worker"],
        )

    def meet(self, connection: Any, is_heard: bool) -> None:
        """Neighbours tell what they know of as revoked, and are heard from now on. `is_heard`: so is what else comes
        meanwhile, which is on the same connection."""
        from celery.worker.consumer.gossip import Gossip
        from celery.worker.consumer.mingle import Mingle

        with contextlib.nullcontext(connection) if is_heard else connection.clone() as asking:
            self.consumer.connection = asking
            Mingle(self.consumer).sync(self.consumer)
        self.consumer.connection = connection
        gossip: Any = Gossip(self.consumer)
        gossip.dispatcher = self.consumer.event_dispatcher
        for listener in gossip.get_consumers(connection.channel()):
            listener.consume()

    def start(self) -> None:
        from celery import signals
        from celery.worker.heartbeat import Heart

        self.heart = Heart(self.timer, self.consumer.event_dispatcher)
        self.heart.start()
        if not self.was_ready:
            signals.worker_ready.send(sender=self.consumer)
            self.was_ready = True
        self.look()

    def hear_broadcasts(self, channel: Any) -> None:
        """What is sent to all workers comes to those that listen; it waits in the list of the queue then, as what comes
        from clients that know the exchange by its bindings alone."""

        from kombu.messaging import Consumer

        def take(message: Any) -> None:
            if not self.heard.is_new(message.delivery_tag):
                return
            channel._put(name_of[message.delivery_info["exchange"]], message._raw)

        queues = self._broadcasts()
        name_of = {queue.exchange.name: queue.name for queue in queues}
        if queues:
            Consumer(channel, queues, no_ack=True, on_message=take).consume()

    def _broadcasts(self) -> list[Any]:
        return [queue for queue in self.queues.values() if queue.exchange.type == "fanout"]

    def forget_broadcasts(self, channel: Any) -> None:
        """Nobody listens there any more."""
        for queue in self._broadcasts():
            queue(channel).delete()

    def stop(self) -> None:
        from celery import signals

        signals.worker_shutting_down.send(sender=self.consumer.hostname, sig="SIGTERM", how="Warm", exitcode=0)
        self.heart.stop()
        signals.worker_shutdown.send(sender=self.controller)

    def look_at_times(self) -> None:
        if time.monotonic() >= self.looked_at + LOOK_SECONDS:
            self.look()
            self.count()

    def look(self) -> None:
        """Passes on what has changed, and takes over what the dispatcher has done."""
        self.looked_at = time.monotonic()
        self.pass_on()
        self._look_at_requests()

    def pass_on(self) -> None:
        known: Any = self.state.revoked
        revoked: set[str] = set(known)
        self.store.revoke(revoked - self.revoked)
        self.revoked = revoked
        groups = self.consumer.event_dispatcher.groups
        settings = settings_of(self.app, self.queues, not groups or "task" in groups)
        if settings != self.told or not self.store.has_told():
            self.store.tell_workers(settings)
            self.told = settings

    def _look_at_requests(self) -> None:
        """Celery's commands look at the requests of their process: those of the workers stand for them."""
        began = {call["job"]: (worker, call) for worker, call in self.dispatcher.running() if call["job"]}
        here, later = dict(self.store.held(self.dispatcher.pid)), dict(self.store.scheduled())
        for task_id in self.requests.keys() - here.keys() - later.keys():
            self._forget(self.requests.pop(task_id))
        for task_id, message in (later | here).items():
            request = self.requests.get(task_id) or self._request(message)
            if request is None:
                continue
            self.requests[task_id] = request
            self.state.requests[task_id] = request
            running = began.get(task_id)
            if task_id in here:
                self.state.scheduled_requests.discard(request)
                self.state.reserved_requests.add(request)
            else:
                self.state.reserved_requests.discard(request)
                self.state.scheduled_requests.add(request)
            if running is not None and request not in self.state.active_requests:
                worker, call = running
                request.worker_pid = worker.get("pid")
                request.time_start = time.time() - (call.get("seconds") or 0)
                request.acknowledged = not request.task.acks_late
                self.state.active_requests.add(request)
        self.consumer.timer.schedule.queue = [Waiting(request) for request in self.state.scheduled_requests]

    def _request(self, message: dict[str, Any]) -> Any:
        from clutch.celery.standin import request_of

        try:
            return request_of(self.consumer, self.consumer.message(message), self._elsewhere)
        except Exception:  # whoever runs it tells what is wrong with it
            return None

    def _elsewhere(self, base: Any) -> Any:
        """The class of a request that runs in a worker: it is ended there, and there it is told."""
        dispatcher = self.dispatcher

        class Elsewhere(base):
            def terminate(self, pool: Any, signal: Any = None) -> None:
                threading.Thread(target=dispatcher.cancel, args=(self.id,), daemon=True).start()

            def cancel(self, pool: Any, signal: Any = None, emit_retry: bool = True) -> None:
                self.terminate(pool, signal)

        return Elsewhere

    def _forget(self, request: Any) -> None:
        self.state.requests.pop(request.id, None)
        for known in (self.state.active_requests, self.state.reserved_requests, self.state.scheduled_requests):
            known.discard(request)

    # ---- what commands ask for

    def add_queue(
        self, queue: str, exchange: Any = None, exchange_type: Any = None, routing_key: Any = None, **more: Any
    ) -> None:
        known = self.app.amqp.queues
        if queue in known:
            made = known.select_add(known[queue])
        else:
            kind = exchange_type or "direct"
            made = known.select_add(
                queue, exchange=exchange or queue, exchange_type=kind, routing_key=routing_key, **more
            )
        made(self.consumer.connection.default_channel).declare()
        self.queues[queue] = made
        self.consumer.task_consumer.queues = list(self.queues.values())
        self.look()

    def cancel_queue(self, queue: str) -> None:
        self.app.amqp.queues.deselect(queue)
        self.queues.pop(queue, None)
        self.consumer.task_consumer.queues = list(self.queues.values())
        self.look()

    def stats(self) -> dict[str, Any]:
        import resource

        pool = self.dispatcher.pool()
        workers = pool.get("workers", ())
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "total": dict(self.count()),
            "pid": self.dispatcher.pid,
            "clock": str(self.app.clock),
            "uptime": round(time.time() - self.started_at),
            "pool": {
                "implementation": "clutch",
                "max-concurrency": self.slots.num_processes,
                "processes": [worker.get("pid") for worker in workers],
                "timeouts": [self.app.conf.task_soft_time_limit or 0, self.app.conf.task_time_limit or 0],
            },
            "broker": self.consumer.connection.info(),
            "prefetch_count": self.slots.num_processes,
            "rusage": {name.removeprefix("ru_"): getattr(usage, name) for name in dir(usage) if name.startswith("ru_")},
            **self._scaling(pool),
        }

    def _scaling(self, pool: dict[str, Any]) -> dict[str, Any]:
        least, most = pool.get("min", 0), pool.get("max", 0)
        if least == most:
            return {}
        current, waiting = len(pool["workers"]), len(self.state.reserved_requests)
        return {"autoscaler": {"min": least, "max": most, "current": current, "qty": waiting}}

    def count(self) -> Counter[str]:
        """Takes over what the dispatcher has counted, for those who ask, and for heartbeats."""
        totals = self.dispatcher.totals()
        self.state.all_total_count[0] = totals.total()
        return totals


class Waits:
    """The timer of the node, with the tasks that wait for their time in place of its own entries."""

    def __init__(self, timer: Any) -> None:
        self.call_repeatedly = timer.call_repeatedly
        self.cancel = timer.cancel
        self.schedule = SimpleNamespace(queue=[])


class Waiting:
    """An entry of the timer that Celery's `scheduled` looks at."""

    priority = 6

    def __init__(self, request: Any) -> None:
        self.entry = SimpleNamespace(args=(request,))


if __name__ == "__main__":
    main()
