"""Reload, recycle, scale and deaths of workers under load: no connection is refused, nothing fails but what a killed
worker had begun."""

from __future__ import annotations

import collections
import contextlib
import http.client
import os
import select
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.clutch_process import WAIT_SECONDS, clutch, environment
from support.serve_process import ANY_PORT, Serving

CLIENTS = 8
BY_REQUEST = "--dispatch request"
ASGI = [pytest.param("web:app", id="asgi"), pytest.param(f"web:app {BY_REQUEST}", id="asgi-by-request")]
WSGI = [pytest.param("web:wsgi", id="wsgi"), pytest.param(f"web:wsgi {BY_REQUEST}", id="wsgi-by-request")]
APPS = ASGI + WSGI


class Load:
    """Clients in a closed loop, each on one connection that is kept alive: what they were answered."""

    def __init__(self, address: str) -> None:
        self.answers: collections.Counter[int | str] = collections.Counter()
        self._address = address
        self._ended = threading.Event()
        self._changed = threading.Condition()
        self._threads = [threading.Thread(target=self._run) for _ in range(CLIENTS)]

    def _run(self) -> None:
        connection = http.client.HTTPConnection(self._address, timeout=WAIT_SECONDS)
        while not self._ended.is_set():
            try:
                connection.request("GET", "/")
                response = connection.getresponse()
                response.read()
                answer: int | str = response.status
            except (OSError, http.client.HTTPException) as error:
                answer = repr(error)
                connection.close()
            with self._changed:
                self.answers[answer] += 1
                self._changed.notify_all()
        connection.close()

    def more(self, count: int = 200) -> None:
        """Waits for so many answers more."""
        with self._changed:
            wanted = self.answers.total() + count
            assert self._changed.wait_for(lambda: self.answers.total() >= wanted, WAIT_SECONDS), self.answers

    @contextlib.contextmanager
    def running(self) -> Iterator[Load]:
        for thread in self._threads:
            thread.start()
        try:
            self.more()
            yield self
            self.more()
        finally:
            self._ended.set()
            for thread in self._threads:
                thread.join()


@contextlib.contextmanager
def loaded(folder: Path, app: str, *flags: str) -> Iterator[tuple[Serving, Load]]:
    """Two workers under load. What was answered is checked by the test, when this has ended. `app`: with its flags."""
    env = environment() | {"PYTHONDONTWRITEBYTECODE": "1"}
    with Serving(folder, *app.split(), "-w", "2", "-b", ANY_PORT, *flags, env=env) as serving:
        serving.wait_ready("web")
        load = Load(serving.address)
        with load.running():
            yield serving, load
        serving.terminate()
        assert serving.wait() == 0


def command(name: str, serving: Serving) -> subprocess.CompletedProcess[str]:
    return clutch(name, "--pid", str(serving.process.pid), cwd=serving.folder)


@pytest.mark.parametrize("app", APPS)
def test_failure_36_reload_under_load(tmp_path: Path, app: str) -> None:
    target, *flags = app.split()
    module, _, name = target.partition(":")
    code = tmp_path / "changing.py"
    text = f"import os\nos.environ['A'] = {{!r}}\nfrom {module} import {name}\n"
    code.write_text(text.format("old"))
    with loaded(tmp_path, f"changing:{name}", *flags) as (serving, load):
        for number in range(3):
            code.write_text(text.format(f"new {number}"))
            assert command("reload", serving).returncode == 0
            assert serving.get().json["env"]["A"] == f"new {number}"
        code.write_text("import no_such_module\n")
        assert command("reload", serving).returncode != 0
        assert serving.get().json["env"]["A"] == "new 2", "the old code goes on"
    assert set(load.answers) == {200}, load.answers


@pytest.mark.parametrize("app", ASGI)
def test_failure_33_every_worker_is_recycled_under_load(tmp_path: Path, app: str) -> None:
    with loaded(tmp_path, app) as (serving, load):
        before = set(serving.workers())
        assert command("recycle", serving).returncode == 0
        assert not before & set(serving.workers())
    assert set(load.answers) == {200}, load.answers


@pytest.mark.parametrize("app", APPS)
def test_failure_33_recycling_by_requests_under_load(tmp_path: Path, app: str) -> None:
    with loaded(tmp_path, app, "--max-requests", "100") as (serving, load):
        before = set(serving.workers())
        load.more(2000)
        serving.until(lambda pids: not before & set(pids))
    assert set(load.answers) == {200}, load.answers


@pytest.mark.parametrize("app", ASGI)
def test_more_and_fewer_workers_under_load(tmp_path: Path, app: str) -> None:
    with loaded(tmp_path, app) as (serving, load):
        for number, count in ((signal.SIGTTIN, 3), (signal.SIGTTOU, 2), (signal.SIGTTOU, 1), (signal.SIGTTIN, 2)):
            serving.send(number)
            serving.until(lambda pids, count=count: len(pids) == count)
            load.more()
    assert set(load.answers) == {200}, load.answers


@pytest.mark.parametrize("app", APPS)
def test_failure_27_every_worker_is_killed_in_turn_under_load(tmp_path: Path, app: str) -> None:
    """What a worker had begun is a 502: as many at most as there are clients, for each kill. A response that a worker
    was writing itself is cut off."""
    with loaded(tmp_path, app) as (serving, load):
        killed = serving.workers()
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
            serving.until(lambda pids, pid=pid: pid not in pids and len(pids) == 2)
            load.more()
    cut_off = {answer for answer in load.answers if isinstance(answer, str)} if BY_REQUEST not in app else set()
    assert set(load.answers) <= {200, 502} | cut_off, load.answers
    assert load.answers.total() - load.answers[200] <= CLIENTS * len(killed), load.answers


def test_a_full_pool_refuses_requests_and_keeps_their_connections(tmp_path: Path) -> None:
    """503 with Retry-After, counted in requests: the same connection is served afterwards."""
    with Serving(tmp_path, "web:wsgi", "-w", "1", "-b", ANY_PORT, "--backlog", "1") as serving:
        serving.wait_ready("web")
        (pid,) = serving.workers()
        os.kill(pid, signal.SIGSTOP)
        try:
            with contextlib.ExitStack() as clients:
                connections = {clients.enter_context(serving.asking()) for _ in range(4)}
                by_socket = {connection.sock: connection for connection in connections}
                answered, _, _ = select.select(list(by_socket), [], [], WAIT_SECONDS)
                refused = by_socket[answered[0]]
                assert status_of_answer(refused) == 503
                os.kill(pid, signal.SIGCONT)
                others = [status_of_answer(connection) for connection in connections - {refused}]
                assert 200 in others
                assert set(others) <= {200, 503}
                refused.request("GET", "/")
                assert status_of_answer(refused) == 200
        finally:
            os.kill(pid, signal.SIGCONT)


def status_of_answer(connection: http.client.HTTPConnection) -> int:
    response = connection.getresponse()
    response.read()
    assert response.status == 200 or response.headers["Retry-After"]
    return response.status
