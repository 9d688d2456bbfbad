"""An app that was served and does not start any more: told to clients and operators, and served again by itself."""

from __future__ import annotations

import http.client
import os
import re
import signal
from pathlib import Path

import pytest

from support.clutch_process import Answer, answer, clutch, soon
from support.rendezvous import Rendezvous
from support.serve_process import ANY_PORT, Serving

APP = """
import pathlib

IS_WELL = pathlib.Path("well").exists()
if not IS_WELL and {fails_to_import}:
    raise ValueError("the settings are away")

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        if not IS_WELL:
            await send({{"type": "lifespan.startup.failed", "message": "the database is away"}})
            return
        await send({{"type": "lifespan.startup.complete"}})
        await receive()
        await send({{"type": "lifespan.shutdown.complete"}})
        return
    await send({{"type": "http.response.start", "status": 200, "headers": []}})
    await send({{"type": "http.response.body", "body": b"well"}})
"""

# Until it is let go.
STARTS_LATE = """
from support.rendezvous import meet_async

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        await meet_async({port})
        await send({{"type": "lifespan.startup.complete"}})
        await receive()
        await send({{"type": "lifespan.shutdown.complete"}})
"""

# As frameworks do it: the traceback is the reason, and the exception goes on.
TELLS_AND_RAISES = """
import traceback

async def app(scope, receive, send):
    await receive()
    try:
        raise RuntimeError("the database is away")
    except RuntimeError:
        await send({"type": "lifespan.startup.failed", "message": traceback.format_exc()})
        raise
"""

# The module is imported in each worker, so that it may fail there: else the zygote has it.
SETTINGS = ["-b", ANY_PORT, "-w", "2", "--set", "pools.web.preload=false", "--set", f"fronts.admin.bind={ANY_PORT}"]


def ready(serving: Serving) -> Answer:
    connection = http.client.HTTPConnection(serving.err.wait(r"admin: http://(\S+)")[1], timeout=30)
    connection.request("GET", "/readyz")
    return answer(connection)


@pytest.mark.parametrize("fails_to_import", [True, False])
def test_failure_12_an_app_that_does_not_start_any_more(tmp_path: Path, fails_to_import: bool) -> None:
    (tmp_path / "shop.py").write_text(APP.format(fails_to_import=fails_to_import))
    well = tmp_path / "well"
    well.touch()
    reason = "the settings are away" if fails_to_import else "the database is away"
    with Serving(tmp_path, "shop:app", *SETTINGS) as serving:
        serving.wait_ready("web")
        assert (serving.get().status, ready(serving).status) == (200, 200)
        well.unlink()
        for pid in serving.workers():
            os.kill(pid, signal.SIGKILL)
        soon(lambda: serving.pool()["state"] == "failing")
        refused = serving.get()
        assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
        told = ready(serving)
        assert (told.status, reason in told.body.decode()) == (503, True)
        assert reason in serving.pool()["reason"]
        assert reason in clutch("ps", "--pid", str(serving.process.pid), cwd=tmp_path).stdout
        well.touch()
        soon(lambda: serving.get().status == 200)
        soon(lambda: serving.pool()["state"] == "ready")
        assert ready(serving).status == 200


@pytest.mark.parametrize("fails_to_import", [True, False])
def test_an_app_that_never_started_ends_the_start(tmp_path: Path, fails_to_import: bool) -> None:
    (tmp_path / "shop.py").write_text(APP.format(fails_to_import=fails_to_import))
    with Serving(tmp_path, "shop:app", *SETTINGS) as serving:
        assert serving.wait() == 2
        assert ("the settings are away" if fails_to_import else "the database is away") in serving.err.text


RAISES = """
async def app(scope, receive, send):
    raise RuntimeError("the database is away")
"""


@pytest.mark.parametrize(
    ("app", "lifespan", "why"),
    [
        (TELLS_AND_RAISES, "auto", "could not start: RuntimeError: the database is away"),
        (RAISES, "on", "at lifespan.startup the app raised RuntimeError('the database is away')"),
    ],
    ids=["tells and raises", "raises"],
)
def test_why_an_app_never_started_is_told_once(tmp_path: Path, app: str, lifespan: str, why: str) -> None:
    (tmp_path / "shop.py").write_text(app)
    flags = ["shop:app", "-b", ANY_PORT, "-w", "1", "--set", f"fronts.serve.lifespan={lifespan}"]
    with Serving(tmp_path, *flags) as serving:
        assert serving.wait() == 2
        told = serving.err.wait_end()
    assert told.count("Traceback (most recent call last)") == 1, told
    assert "LifespanFailed" not in told
    assert why in told


def test_an_app_that_starts_late_is_told_of(tmp_path: Path, rendezvous: Rendezvous) -> None:
    (tmp_path / "late.py").write_text(STARTS_LATE.format(port=rendezvous.port))
    with Serving(tmp_path, "late:app", "-b", ANY_PORT, "-w", "1") as serving:
        guest = rendezvous.guest()
        told = "`clutch stack web` shows where, unless a coroutine waits"
        serving.err.wait(rf"pool web: still starting after 10 s .*{told}")
        guest.let_go()
        serving.wait_ready("web")


def test_an_access_log_on_a_full_disk_is_told_of_and_its_lines_are_counted(tmp_path: Path) -> None:
    flags = ["-b", ANY_PORT, "-w", "1", "--access-logfile", "/dev/full", "--set", f"fronts.admin.bind={ANY_PORT}"]
    (tmp_path / "well").touch()
    (tmp_path / "app.py").write_text(APP.format(fails_to_import=False))
    with Serving(tmp_path, "app:app", *flags) as serving:
        serving.wait_ready("web")
        # More than is kept for when there is room again.
        long = "/?" + "x" * 4000
        soon(lambda: serving.get(long).status == 200 and dropped(serving) > 0)
        serving.err.wait(r"WARNING fronts.serve.access_log '/dev/full': its lines cannot be written: No space left")


def dropped(serving: Serving) -> int:
    connection = http.client.HTTPConnection(serving.err.wait(r"admin: http://(\S+)")[1], timeout=30)
    connection.request("GET", "/metrics")
    found = re.search(r"^clutch_http_access_log_dropped_total\{.*\} (\d+)", answer(connection).body.decode(), re.M)
    return int(found[1]) if found else 0
