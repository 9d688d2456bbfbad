"""A stop while workers start: what an app does at its start is not cut off in the middle, and is undone in order."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from support.clutch_process import clutch
from support.rendezvous import Rendezvous
from support.serve_process import ANY_PORT, Serving

APP = """
import sys
from support.rendezvous import meet, meet_async

async def app(scope, receive, send):
    assert scope["type"] == "lifespan"
    await receive()
    {wait}
    sys.stdout.write("migrated\\n")
    await send({{"type": "lifespan.startup.complete"}})
    await receive()
    sys.stdout.write("closed\\n")
    await send({{"type": "lifespan.shutdown.complete"}})
"""
WAITS = {"in a task": "await meet_async({port})", "in the loop": "meet({port})"}


@pytest.mark.parametrize("shape", [["-w", "1"], ["-w", "1", "--threads", "2"], ["-k", "greenlet", "-w", "1"]], ids=str)
@pytest.mark.parametrize("wait", WAITS)
def test_a_lifespan_that_starts_is_finished(
    tmp_path: Path, rendezvous: Rendezvous, wait: str, shape: list[str]
) -> None:
    (tmp_path / "starting.py").write_text(APP.format(wait=WAITS[wait].format(port=rendezvous.port)))
    with Serving(tmp_path, "starting:app", *shape, "-b", ANY_PORT) as serving:
        guests = rendezvous.guests(2 if "--threads" in shape else 1)
        serving.terminate()
        serving.err.wait("SIGTERM: stopping")
        serving.err.wait("it was starting")
        for guest in guests:
            guest.let_go()
        assert serving.wait() == 0
    said = [line.removeprefix("[web/0] ") for line in serving.out.text.splitlines()]
    assert said == ["migrated"] * len(guests) + ["closed"] * len(guests)


def test_one_ctrl_c_lets_it_finish_and_a_second_cuts_it_off(tmp_path: Path, rendezvous: Rendezvous) -> None:
    (tmp_path / "starting.py").write_text(APP.format(wait=WAITS["in a task"].format(port=rendezvous.port)))
    for times in (1, 2):
        with Serving(tmp_path, "starting:app", "-w", "1", "-b", ANY_PORT) as serving:
            guest = rendezvous.guest()
            serving.send(signal.SIGINT)
            serving.err.wait("SIGINT: stopping")
            if times == 2:
                serving.hurry(lambda serving=serving: serving.send(signal.SIGINT))
                guest.wait_gone()
            else:
                guest.let_go()
                assert serving.wait() == 0
        said = [line.removeprefix("[web/0] ") for line in serving.out.text.splitlines()]
        assert said == (["migrated", "closed"] if times == 1 else [])


def test_new_code_lets_a_start_of_the_old_finish(tmp_path: Path, rendezvous: Rendezvous) -> None:
    file = tmp_path / "starting.py"
    file.write_text(APP.format(wait=WAITS["in a task"].format(port=rendezvous.port)))
    with Serving(tmp_path, "starting:app", "-w", "1", "--reload", "-b", ANY_PORT) as serving:
        guest = rendezvous.guest()
        file.write_text(APP.format(wait="pass").replace("migrated", "new"))
        serving.out.wait("new")
        guest.let_go()
        serving.out.wait("migrated")
        serving.out.wait("closed")


def test_a_smaller_pool_lets_a_start_finish(tmp_path: Path, rendezvous: Rendezvous) -> None:
    (tmp_path / "starting.py").write_text(APP.format(wait=WAITS["in a task"].format(port=rendezvous.port)))
    with Serving(tmp_path, "starting:app", "-w", "1", "-b", ANY_PORT) as serving:

        def scale(workers: int) -> None:
            done = clutch("scale", "web", str(workers), "--pid", str(serving.process.pid), cwd=tmp_path)
            assert done.returncode == 0, done.stderr

        rendezvous.guest().let_go()
        serving.out.wait("migrated")
        scale(2)
        guest = rendezvous.guest()
        scale(1)
        guest.let_go()
        serving.out.wait(r"\[web/1\] migrated")
        serving.out.wait(r"\[web/1\] closed")


def test_an_import_is_cut_off(tmp_path: Path, rendezvous: Rendezvous) -> None:
    text = f"from support.rendezvous import meet\nmeet({rendezvous.port})\napp = print\n"
    (tmp_path / "starting.py").write_text(text)
    with Serving(tmp_path, "starting:app", "-w", "1", "-b", ANY_PORT) as serving:
        guest = rendezvous.guest()
        serving.terminate()
        guest.wait_gone()
        assert serving.wait() == 0
