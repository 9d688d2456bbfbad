"""The life of `clutch run`, with pools and fronts that only write down what is asked of them."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clutch import config
from clutch.cli import logs
from clutch.cli.run import Server
from clutch.errors import ConfigError, PoolClosed


class Scene:
    """What happened, in order; and what the pools do when they are asked whether they are ready."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.when_ready: Callable[[], None] = lambda: None
        self.listen: Callable[[], None] = lambda: None


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    scene = Scene()

    class Pool:
        _core = "core"

        def __init__(self, spec: config.PoolSpec) -> None:
            self.name = spec.name
            scene.events.append(f"{self.name} starts")

        from_spec = classmethod(lambda kind, spec: kind(spec))

        def wait_ready(self, workers: int) -> None:
            scene.events.append(f"{self.name} {workers} ready")
            scene.when_ready()

        def _stop(self, grace_s: float) -> None:
            scene.events.append(f"{self.name} has {grace_s:g} s")

        def shutdown(self) -> None:
            scene.events.append(f"{self.name} is gone")

    class Fronts:
        def __init__(self, pools: dict[str, Any], http: str | None, admin: str | None) -> None:
            scene.events.append(f"fronts start: {list(pools)} {http is not None} {admin is not None}")
            scene.listen()

        def http_address(self) -> str:
            return "127.0.0.1:8080"

        def admin_address(self) -> None:
            return None

        def stop(self, grace_s: float) -> None:
            scene.events.append(f"fronts stop {grace_s:g}")

    core, pool = types.ModuleType("clutch._core"), types.ModuleType("clutch.pool")
    core.Fronts, pool.Pool = Fronts, Pool  # type: ignore[attr-defined]
    import clutch

    monkeypatch.setitem(sys.modules, "clutch._core", core)
    monkeypatch.setattr(clutch, "_core", core, raising=False)
    monkeypatch.setitem(sys.modules, "clutch.pool", pool)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    yield scene
    for number, handler in zip((signal.SIGINT, signal.SIGTERM), handlers, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def loaded(tmp_path: Path) -> config.Config:
    file = tmp_path / "clutch.toml"
    file.write_text('[pools.a]\ntarget = "x"\nworkers = 3\ngrace = "5s"\n[fronts.http]\n')
    return config.load(file, environ={})


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_starts_and_stops_in_order(scene: Scene, loaded: config.Config) -> None:
    scene.when_ready = terminate
    assert Server(loaded).serve() == 0
    starts = ["a starts", "fronts start: ['a'] True False", "a 3 ready"]
    assert scene.events == [*starts, "fronts stop 5", "a has 5 s", "a is gone"]


def test_a_pool_that_can_never_be_ready_ends_the_run_with_2(scene: Scene, loaded: config.Config) -> None:
    def broken() -> None:
        raise ConfigError("no module named x")

    scene.when_ready = broken
    assert Server(loaded).serve() == 2
    assert scene.events[-1] == "a is gone"


def test_another_trouble_at_the_start_is_only_told(scene: Scene, loaded: config.Config) -> None:
    def closed() -> None:
        terminate()
        raise PoolClosed("stopping")

    scene.when_ready = closed
    assert Server(loaded).serve() == 0


def test_an_address_that_is_taken_stops_the_pools_and_ends_with_1(
    scene: Scene, loaded: config.Config, caplog: pytest.LogCaptureFixture
) -> None:
    def taken() -> None:
        raise OSError("127.0.0.1:8080: address in use")

    scene.listen = taken
    logs.log.propagate = True
    with caplog.at_level(logging.INFO, "clutch"):
        assert Server(loaded).serve() == 1
    assert scene.events[-1] == "a is gone"
    assert "cannot start: 127.0.0.1:8080: address in use" in caplog.text


def test_a_second_signal_ends_at_once(scene: Scene, loaded: config.Config, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    codes: list[int] = []

    def end(code: int) -> None:
        codes.append(code)
        ended.set()

    monkeypatch.setattr(os, "_exit", end)

    def stop_slowly(_pool: Any) -> None:
        terminate()
        ended.wait(10)

    scene.when_ready = terminate
    monkeypatch.setattr(sys.modules["clutch.pool"].Pool, "shutdown", stop_slowly)
    assert Server(loaded).serve() == 0
    assert codes == [128 + signal.SIGTERM]
