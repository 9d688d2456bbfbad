"""The seam of `clutch compare`: one suite over all peers of a face, and nothing of them left, whoever is killed.

What comes with Python always runs. The others are installed from PyPI, if CLUTCH_TEST_PEERS is set.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clutch.lab import watching
from clutch.lab.contender import Contender
from clutch.lab.load import Load
from clutch.lab.peers import packages, registry
from clutch.lab.peers.comparison import clutches
from clutch.lab.peers.seam import Face, Peer
from clutch.lab.trial import Trial, TrialFailed
from clutch.lab.work import App, Calls, JobRun, Request, Work

WORKERS = 2
SECONDS = 0.2
GONE_SECONDS_MAX = 20.0
MARK = "CLUTCH_TEST_MARK"
CODE = """
import os
import threading

def double(n=21):
    return 2 * n

async def double_async(n=21):
    return 2 * n

def fail():
    raise LookupError("no such customer")

def keep_up():  # its process waits for this thread at its end, for ever
    threading.Thread(target=threading.Event().wait).start()

def note(word="", file=""):
    out = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(out, (word + "\\n").encode())
    os.close(out)

async def note_async(word="", file=""):
    note(word, file)

async def asgi(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    answer = scope["path"].encode() + b" " + body
    headers = [(b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})

def wsgi(environ, start_response):
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    answer = environ["PATH_INFO"].encode() + b" " + body
    start_response("200 OK", [("Content-Length", str(len(answer)))])
    return [answer]
"""
CALLER = """
import importlib, json, sys, peers_work
order = json.loads(sys.argv[1])
executor = importlib.import_module(order["executor"]).start(order)
answers = [
    executor.submit(peers_work.double, 4).result(30),
    executor.submit(peers_work.double, n=5).result(30),
    executor.submit(peers_work.double_async, 6).result(30),
    type(executor.submit(peers_work.fail).exception(30)).__name__,
]
print(json.dumps(answers), flush=True)
executor.end()
"""


def able(face: Face) -> list[Any]:
    return [pytest.param(peer, id=peer.name) for peer in registry.everyone() if face in peer.faces]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the user's code is; all that is started there is marked."""
    (tmp_path / "peers_work.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(MARK, str(tmp_path))
    return tmp_path


def contender(peer: Peer, work: Work, face: Face) -> Contender:
    """Skips where it cannot run here."""
    if peer.requirements and not os.environ.get("CLUTCH_TEST_PEERS"):
        pytest.skip("CLUTCH_TEST_PEERS is not set: nothing is installed from PyPI")
    if reason := peer.lacks():
        pytest.skip(reason)
    try:
        return peer.contender(work, face, WORKERS, packages.install(peer), None)
    except packages.NotInstalled as error:
        pytest.skip(f"not installed: {error}")


def marked(mark: Path) -> list[int]:
    """Processes that this test has started, whatever has become of their parents."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if f"{MARK}={mark}".encode() in Path(f"/proc/{name}/environ").read_bytes():
                found.append(int(name))
    return [pid for pid in found if pid != os.getpid()]


def left_of(mark: Path, seen: set[int] | None = None) -> list[str]:
    """Command lines of those that do not end. `seen`: pids whose environment may have been overwritten."""
    until = time.monotonic() + GONE_SECONDS_MAX
    while left := {*marked(mark), *(pid for pid in seen or () if is_alive(pid))}:
        if time.monotonic() > until:
            return [Path(f"/proc/{pid}/cmdline").read_text() for pid in left if is_alive(pid)]
        time.sleep(0.05)
    return []


def is_alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@contextlib.contextmanager
def started(one: Contender, mark: Path) -> Iterator[Trial]:
    """It, and nothing of it left at the end."""
    with one.start() as trial:
        seen = set(watching.below(trial.hello["pid"]))
        yield trial
        seen |= set(watching.below(trial.hello["pid"]))
    assert not left_of(mark, seen)


@pytest.mark.parametrize("peer", able("calls"))
def test_a_pool_answers(peer: Peer, folder: Path) -> None:
    with started(contender(peer, Calls("peers_work", "double"), "calls"), folder) as trial:
        figures = trial.measure(Load(2 * WORKERS), SECONDS)
    assert figures.units > 0 and not figures.errors and figures.cpu_s + figures.load_cpu_s > 0


@pytest.mark.parametrize("peer", able("calls"))
def test_a_pool_answers_rightly(peer: Peer, folder: Path) -> None:
    one = contender(peer, Calls("peers_work", "double"), "calls")
    done = subprocess.run(
        [sys.executable, "-c", CALLER, json.dumps(one.order)],
        env={**os.environ, **one.environment},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.stdout, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [8, 10, 12, "LookupError"]
    assert not left_of(folder)


def serve_and_ask(peer: Peer, face: Face, folder: Path) -> None:
    app = App(f"peers_work:{face}", (Request("/a"),))
    with started(contender(peer, app, face), folder) as trial:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", trial.hello["port"], timeout=30)) as client:
            for method, path, body in [("GET", "/a", b""), ("POST", "/b", b"hello"), ("PUT", "/c", b"x" * 100_000)]:
                client.request(method, path, body or None)
                answer = client.getresponse()
                assert (answer.status, answer.read()) == (200, path.encode() + b" " + body)
        figures = trial.measure(Load(4), SECONDS)
        assert figures.units > 0 and not figures.errors and figures.cpu_s > 0


@pytest.mark.parametrize("peer", able("asgi"))
def test_a_server_answers_rightly(peer: Peer, folder: Path) -> None:
    serve_and_ask(peer, "asgi", folder)


@pytest.mark.parametrize("peer", able("wsgi"))
def test_a_server_of_wsgi_answers_rightly(peer: Peer, folder: Path) -> None:
    serve_and_ask(peer, "wsgi", folder)


def run_jobs(one: Contender, folder: Path) -> None:
    with started(one, folder) as trial:
        figures = [trial.measure(Load(1), SECONDS) for _ in range(2)]
    ran = Counter((folder / "notes").read_text().splitlines())
    assert ran == {"hello": 1 + sum(one.units for one in figures)}, "each job ran once, with its arguments"
    assert all(one.cpu_s > 0 and one.run_s is not None and one.run_s >= 0 for one in figures)


def notes(name: str, folder: Path) -> JobRun:
    return JobRun("peers_work", name, {"word": "hello", "file": str(folder / "notes")})


@pytest.mark.parametrize("name", ["note", "note_async"])
@pytest.mark.parametrize("peer", able("jobs"))
def test_a_queue_runs_each_job_once(peer: Peer, name: str, folder: Path) -> None:
    if (peer.name, name) == ("celery gevent", "note_async"):
        with pytest.raises(TrialFailed, match="asyncio does not run where gevent"):
            run_jobs(contender(peer, notes(name, folder), "jobs"), folder)
        return
    run_jobs(contender(peer, notes(name, folder), "jobs"), folder)


@pytest.mark.parametrize("store", ["sqlite", "redis"])
@pytest.mark.parametrize("name", ["note", "note_async"])
def test_clutch_runs_each_job_once(store: str, name: str, folder: Path) -> None:
    found = {one.name: one for one in clutches(notes(name, folder), WORKERS, None).values()}
    if f"clutch {store}" not in found:
        pytest.skip("there is no redis-server")
    run_jobs(found[f"clutch {store}"], folder)


@pytest.mark.parametrize("peer", [one for face in ("calls", "asgi", "jobs") for one in able(face)])
def test_nothing_is_left_of_a_runner_that_is_killed(peer: Peer, folder: Path) -> None:
    face = peer.faces[0]
    work: dict[str, Work] = {
        "calls": Calls("peers_work", "double"),
        "asgi": App("peers_work:asgi"),
        "jobs": notes("note", folder),
    }
    trial = contender(peer, work[face], face).start()
    seen = set(watching.below(trial.hello["pid"]))
    os.kill(trial.hello["pid"], signal.SIGKILL)
    trial.end()
    assert not left_of(folder, seen)


def test_nothing_is_left_of_a_runner_whose_work_never_ends(folder: Path) -> None:
    (peer,) = (one for one in registry.everyone() if one.name == "futures thread")
    trial = contender(peer, Calls("peers_work", "keep_up"), "calls").start()
    seen = set(watching.below(trial.hello["pid"]))
    os.kill(trial.hello["pid"], signal.SIGTERM)
    assert not left_of(folder, seen)
    trial.end()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_a_comparison_that_is_interrupted(number: signal.Signals, folder: Path) -> None:
    command = [
        "compare",
        "peers_work:double",
        "--peers",
        "futures process,multiprocessing.Pool",
        "--seconds",
        "300ms",
        "--rounds",
        "1000",
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "clutch", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    while "and their starts" not in (said := process.stderr.readline()):
        assert said, "it has ended"
    while len(seen := set(watching.below(process.pid))) < 1 + 3 * (1 + WORKERS):
        assert process.poll() is None, "three runners, with their workers"
    process.send_signal(number)
    process.communicate(timeout=60)
    assert not left_of(folder, seen)
