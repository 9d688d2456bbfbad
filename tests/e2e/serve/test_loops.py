"""The event loop of an app: the one that was chosen, also where the app runs it inside of itself."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from support.clutch_process import clutch
from support.rendezvous import Rendezvous
from support.serve_process import ANY_PORT, Serving, answer

HAS_UVLOOP = importlib.util.find_spec("uvloop") is not None


def loop_of(folder: Path, target: str, *flags: str) -> bytes:
    with Serving(folder, target, "-b", ANY_PORT, *flags) as serving:
        serving.wait_ready("web")
        return serving.get("/").body


@pytest.mark.parametrize("flags", [["--loop", "asyncio"], ["--asgi-loop", "asyncio", "-k", "sync"]])
def test_asyncios_own_is_taken_where_it_is_asked_for(tmp_path: Path, flags: list[str]) -> None:
    assert loop_of(tmp_path, "loop_app:app", *flags) == b"asyncio.unix_events"


def test_uvloop_is_taken_or_missed(tmp_path: Path) -> None:
    if HAS_UVLOOP:
        assert loop_of(tmp_path, "loop_app:app", "--loop", "uvloop") == b"uvloop"
        assert loop_of(tmp_path, "loop_app:app") == b"uvloop"
    else:
        failed = clutch("serve", "loop_app:app", "--loop", "uvloop", "-b", ANY_PORT, cwd=tmp_path)
        assert (failed.returncode, "uvloop is not installed: pip install uvloop" in failed.stderr) == (2, True)


def test_a_loop_that_is_run_inside_of_itself_serves_others(tmp_path: Path, rendezvous: Rendezvous) -> None:
    pytest.importorskip("nest_asyncio")
    with Serving(tmp_path, "nesting_app:app", "-b", ANY_PORT, "-w", "1") as serving:
        serving.wait_ready("web")
        with serving.asking(f"/nest?port={rendezvous.port}") as nested:
            guest = rendezvous.guest()
            for _ in range(3):
                assert serving.get("/").body == b"asyncio.unix_events"
            guest.let_go()
            assert answer(nested).status == 200
        assert not [line for line in serving.err.lines if "Traceback" in line or "cannot enter" in line]
