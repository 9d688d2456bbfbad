"""Targets that gevent has patched: they run, or their start fails at once and says why. And programs."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from clutch import ConfigError, Pool
from support.rendezvous import Rendezvous
from support.script_process import Script

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(
        importlib.util.find_spec("gevent") is None, reason="gevent is not installed: pip install 'clutch[greenlet]'"
    ),
]
TOOLS = """
import asyncio
from clutch import on_start, tool

@tool
def add(a):
    return a + 1

@tool
async def add_async(a):
    await asyncio.sleep(0)
    return a + 1
"""
PATCH = "from gevent import monkey; monkey.patch_all()"
AT_IMPORT = PATCH + TOOLS
AT_START = TOOLS + f"@on_start\ndef patch():\n    {PATCH}\n"
STARTS: list[dict[str, Any]] = [{}, {"preload": False}, {"start": "spawn"}]


def pool_of(code: str, folder: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]) -> Pool:
    (folder / "written_for_gevent.py").write_text(code)
    monkeypatch.syspath_prepend(str(folder))
    return Pool("written_for_gevent", workers=1, **options)


@pytest.mark.parametrize("start", STARTS, ids=str)
@pytest.mark.parametrize("profile", ["thread", "async"])
@pytest.mark.parametrize("code", [AT_IMPORT, AT_START], ids=["at import", "at start"])
def test_where_it_cannot_work_it_is_told_at_once(
    code: str, profile: str, start: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pool_of(code, tmp_path, monkeypatch, {"profile": profile, **start}) as pool:
        with pytest.raises(ConfigError, match=f"for gevent, with which the {profile} profile does not work"):
            pool.wait_ready(timeout=60)
        pool.kill_workers()


@pytest.mark.parametrize("start", STARTS, ids=str)
@pytest.mark.parametrize("profile", ["process", "greenlet"])
def test_elsewhere_it_works(
    profile: str, start: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pool_of(AT_IMPORT, tmp_path, monkeypatch, {"profile": profile, **start}) as pool:
        assert pool.submit("add", 1).result(60) == 2
        assert pool.submit("add_async", 1).result(60) == 2
        assert list(pool.map("add_async", range(3))) == [1, 2, 3]  # type: ignore[arg-type]


PROGRAM = """
from gevent import monkey
monkey.patch_all()
import sys
import gevent
from clutch import Pool
from support.rendezvous import meet

def stream(port):
    yield meet(port)

port = int(sys.argv[1])
USES = {
    "call": lambda pool: pool.call(meet, port),
    "options": lambda pool: pool.options(deadline=60).call(meet, port),
    "result": lambda pool: pool.submit(meet, port).result(60),
    "exception": lambda pool: pool.submit(meet, port).exception(),
    "stream": lambda pool: next(pool.stream(stream, port)),
    "map": lambda pool: next(pool.map(meet, [port])),
    "threadpool": lambda pool: gevent.get_hub().threadpool.apply(pool.call, (meet, port)),
}
if __name__ == "__main__":
    with Pool(2) as pool:
        waiting = [gevent.spawn(USES[sys.argv[2]], pool) for _ in range(2)]
        print("words", sorted(map(str, (one.get() for one in waiting))))
        killed = gevent.spawn(pool.call, meet, port)
        gevent.spawn(input).join()
        killed.kill()
        gevent.spawn(input).join()
"""


@pytest.mark.parametrize("use", ["call", "options", "result", "exception", "stream", "map", "threadpool"])
def test_a_patched_program_waits_in_its_hub(use: str, tmp_path: Path, rendezvous: Rendezvous) -> None:
    with Script(tmp_path, PROGRAM, str(rendezvous.port), use) as script:
        for guest, word in zip(rendezvous.guests(2), ("one", "two"), strict=True):
            guest.let_go(word)
        words = ["None", "None"] if use == "exception" else ["one", "two"]
        assert script.hear("words (.*)") == str(words)
        guest = rendezvous.guest()
        script.tell()
        guest.wait_gone()  # the greenlet that waited was killed, and its call with it
        script.tell()
        assert script.process.wait(30) == 0
