"""A Celery app: tasks that do what real ones do."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from celery import Celery, signals, signature
from celery.exceptions import Ignore, Reject, SoftTimeLimitExceeded
from celery.worker.control import control_command
from kombu import Queue
from kombu.common import Broadcast
from pydantic import BaseModel

from support import rendezvous

BROKER = os.environ["SHOP_BROKER"]

app = Celery("shop", broker=BROKER, backend=os.environ.get("SHOP_BACKEND", BROKER))
app.conf.broker_transport_options = {"visibility_timeout": float(os.environ.get("SHOP_VISIBILITY", "3600"))}
app.conf.result_extended = True
if "SHOP_NEWS" in os.environ:
    app.conf.task_queues = (Queue("celery"), Broadcast("news"))
if "SHOP_PRIMARY" in os.environ:  # as sentinels know it
    app.conf.broker_transport_options["master_name"] = os.environ["SHOP_PRIMARY"]
    app.conf.result_backend_transport_options = {"master_name": os.environ["SHOP_PRIMARY"]}
app.conf.update(worker_pool_restarts=True, **json.loads(os.environ.get("SHOP_SETTINGS", "{}")))
if folder := os.environ.get("SHOP_FOLDER"):  # a broker that is a folder
    places = {"data_folder_in": folder, "data_folder_out": folder, "control_folder": folder}
    app.conf.update(broker_url="filesystem://", broker_transport_options={**places, "polling_interval": 0.05})


@app.task
def add(x: float, y: float) -> float:
    return x + y


@app.task
def total(values: list[float]) -> float:
    return sum(values)


@app.task
def fail() -> None:
    raise ValueError("out of stock")


@app.task(bind=True, max_retries=3)
def try_again(self: Any, times: int) -> int:
    if self.request.retries < times:
        raise self.retry(countdown=0.1)
    return self.request.retries


@app.task(bind=True)
async def greet(self: Any, name: str) -> list[str]:
    await asyncio.sleep(0.01)
    return [self.request.id, f"hello {name}"]


@app.task(bind=True, max_retries=3)
async def try_again_later(self: Any) -> int:
    await asyncio.sleep(0.01)
    if self.request.retries < 1:
        raise self.retry(countdown=0)
    return self.request.retries


@app.task(bind=True, autoretry_for=(ConnectionError,), default_retry_delay=0, max_retries=3)
async def connect_later(self: Any) -> int:
    await asyncio.sleep(0)
    if self.request.retries < 2:
        raise ConnectionError("not yet")
    return self.request.retries


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


@app.task
@decorated
async def greet_decorated(name: str) -> str:
    await asyncio.sleep(0)
    return f"hello {name}"


class Parcel(BaseModel):
    count: int


@app.task(pydantic=True)
async def pack(parcel: Parcel) -> Parcel:
    await asyncio.sleep(0)
    return Parcel(count=parcel.count + 1)


@app.task
def note(path: str, text: str, seconds: float = 0) -> None:
    write(path, text)
    time.sleep(seconds)


@app.task(acks_late=True)
def note_late(path: str, text: str, seconds: float = 0) -> str:
    write(path, text)
    time.sleep(seconds)
    return text


@app.task
def wait_at(port: int, word: str = "") -> str:
    return rendezvous.meet(port, word)


@app.task(acks_late=True)
def wait_at_late(port: int, word: str = "") -> str:
    return rendezvous.meet(port, word)


def write(path: str, text: str) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write(f"{text}\n")


@control_command(args=[("path", str), ("text", str)], signature="[PATH] [TEXT]")
def note_down(state: Any, path: str, text: str) -> dict[str, str]:
    """A command of the app's own."""
    write(path, text)
    return {"ok": "noted"}


@app.task
def note_failure(request: Any, error: Any, traceback: Any, path: str) -> None:
    write(path, repr(error))


@app.task
def meet(path: str, count: int) -> int:
    """Comes back when as many as this run at a time: each writes a line, and waits for those of the others."""
    write(path, "met")
    while len(Path(path).read_text().splitlines()) < count:
        time.sleep(0.01)
    return count


@app.task
def meet_in(path: str, count: int) -> int:
    """As `meet`; the process that it was in."""
    meet(path, count)
    return os.getpid()


@app.task
def pid_of_worker() -> int:
    return os.getpid()


@app.task
def use_memory(megabytes: int) -> int:
    KEPT.append(b"x" * (megabytes << 20))
    return os.getpid()


KEPT: list[bytes] = []


@app.task
def sleep_long() -> None:
    time.sleep(600)


@app.task
def outlive() -> None:
    """Takes no notice of its soft limit."""
    while True:
        try:
            time.sleep(600)
        except SoftTimeLimitExceeded:
            continue


@app.task
def end_worker() -> None:
    os._exit(3)


@app.task(acks_late=True, reject_on_worker_lost=True)
def end_worker_once(path: str) -> str:
    if not os.path.exists(path):
        write(path, "ended")
        os._exit(3)
    return "done"


@app.task(time_limit=1)
def hang() -> None:
    time.sleep(600)


@app.task(soft_time_limit=1)
async def wait_softly() -> str:
    try:
        await asyncio.sleep(600)
    except SoftTimeLimitExceeded:
        await asyncio.sleep(0)  # it may wait in order to tidy up
        return "tidied up"
    return "slept"


@app.task(soft_time_limit=1)
async def wait_softly_for_many() -> None:
    await asyncio.gather(asyncio.sleep(600), asyncio.sleep(600))


@app.task(soft_time_limit=1)
def sleep_softly() -> str:
    try:
        time.sleep(600)
    except SoftTimeLimitExceeded:
        return "tidied up"
    return "slept"


@app.task
def leave() -> None:
    raise SystemExit(3)


@app.task
def use_up_memory() -> None:
    raise MemoryError("no more")


@app.task
def ignore() -> None:
    raise Ignore


@app.task(bind=True, acks_late=True)
def reject_once(self: Any) -> bool:
    if not self.request.delivery_info["redelivered"]:
        raise Reject("once more", requeue=True)
    return True


@app.task
def reject_early() -> None:
    raise Reject("once more", requeue=True)


@app.task
def make_object() -> object:
    return object()


@app.task(rate_limit="5/s")
def paced() -> float:
    return time.time()


@app.task(bind=True)
def replaced(self: Any, x: int) -> None:
    raise self.replace(signature("celery_shop.add", (x, 1)))


SEEN: list[str] = []


@signals.task_prerun.connect
def on_prerun(task: Any, **_: Any) -> None:
    SEEN.append(f"prerun {task.name}")


@signals.celeryd_init.connect
def on_init(sender: str, conf: Any, **_: Any) -> None:
    """Sets nodes up by their names, as Celery's documentation does."""
    SEEN.append("init")
    if sender.startswith("cautious@"):
        conf.task_time_limit = 0.5


@signals.celeryd_after_setup.connect
def on_setup(sender: str, instance: Any, **_: Any) -> None:
    if "SHOP_ADDED" in os.environ:
        instance.app.amqp.queues.select_add(f"{sender}.{os.environ['SHOP_ADDED']}")


@signals.worker_process_shutdown.connect
def on_process_end(pid: int, exitcode: int, **_: Any) -> None:
    if "SHOP_ENDED" in os.environ:
        write(os.environ["SHOP_ENDED"], f"{pid == os.getpid()} {exitcode}")


@signals.worker_process_init.connect
def on_process(**_: Any) -> None:
    SEEN.append("process")


@app.task
def seen() -> list[str]:
    return SEEN


@app.task(bind=True)
def note_sender(self: Any, path: str) -> None:
    """Whether `celery beat` has sent it."""
    write(path, str((self.request.headers or {}).get("celery_beat_task", self.request.get("celery_beat_task"))))
