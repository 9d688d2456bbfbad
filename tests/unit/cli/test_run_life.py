"""The life of `clutch run`, with pools and fronts that only write down what is asked of them."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clutch import config
from clutch._dispatcher import logs
from clutch._process.pidfile import Pidfile
from clutch._process.signals import OF_SERVE, bounds
from clutch.cli.run import Server
from clutch.control import client
from clutch.errors import ConfigError, PoolClosed

END = ["a is gone", "jobs are settled", "admin stops"]


class Scene:
    """What happened, in order; and what the pools do when they are asked whether they are ready."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.when_ready: Callable[[], None] = lambda: None
        self.when_ready_of: dict[str, Callable[[], None]] = {}
        self.listen: Callable[[], None] = lambda: None
        self.when_reloaded: Callable[[], None] = lambda: None
        self.when_fronts_stop: Callable[[], object] = lambda: None
        self.stopping = threading.Event()
        """A pool is."""
        self.workers = 3
        self.when_scaled: Callable[[], None] = lambda: None
        self.control = Path()
        """Where the control socket is."""


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    numbers = tuple(OF_SERVE)
    handlers = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, handlers, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:  # noqa: C901 (all that pools and fronts are asked)
    import clutch
    from clutch import _core as real

    scene = Scene()

    class Pool:
        _core = "core"

        def __init__(self, spec: config.PoolSpec) -> None:
            self.name = spec.name
            scene.events.append(f"{self.name} starts")

        from_spec = classmethod(lambda kind, spec: kind(spec))

        def wait_ready(self, workers: int, timeout: float | None = None) -> None:
            scene.events.append(f"{self.name} {workers} ready")
            scene.when_ready_of.get(self.name, scene.when_ready)()

        def reload(self) -> None:
            scene.events.append(f"{self.name} reloads")
            scene.when_reloaded()

        def stats(self) -> dict[str, Any]:
            return {"min": scene.workers, "max": scene.workers, "target": scene.workers, "image": {}}

        def scale(self, *, min: int, max: int) -> None:  # noqa: A002
            scene.events.append(f"{self.name} scales to {min}-{max}")
            scene.workers = min
            scene.when_scaled()

        def _stop(self, grace_s: float) -> None:
            scene.events.append(f"{self.name} has {grace_s:.0f} s")
            scene.stopping.set()

        def shutdown(self) -> None:
            scene.events.append(f"{self.name} is gone")

    class Plane:
        """The real one, but for the pools."""

        def __init__(self, identity: str, host: object) -> None:
            self.pools: list[str] = []
            self.real = real.Plane(identity, host)

        def add(self, pool: Pool) -> None:
            self.pools.append(pool.name)

        def open(self, path: Path, while_pools: bool) -> None:
            self.real.open(path, while_pools)
            scene.control = path

        def is_open(self) -> bool:
            return True

        def stops(self) -> None:
            self.real.stops()

        def close(self, waits: bool) -> None:
            self.real.close(waits)

        def remove_file(self) -> None:
            self.real.remove_file()

    class Fronts:
        def __init__(self, plane: Plane, fronts: list[tuple[str, str, str]]) -> None:
            scene.events.append(f"fronts start: {plane.pools} {[name for name, _, _ in fronts]}")
            scene.listen()

        def addresses(self, front: str) -> list[str]:
            return ["127.0.0.1:8080"]

        def address(self, front: str) -> str:
            return "127.0.0.1:8080"

        def token(self, front: str) -> None:
            return None

        def reload_files(self, pools: list[str]) -> list[tuple[str, str | None]]:
            return []

        def next_warning(self) -> None:
            return None

        def stop_work(self, grace_s: float) -> None:
            scene.events.append(f"fronts stop {grace_s:g}")
            scene.when_fronts_stop()

        def settle(self, at_most_s: float) -> None:
            scene.events.append("jobs are settled")

        def leave(self) -> None:
            pass

        def stop(self, grace_s: float) -> None:
            scene.events.append("admin stops")

    class Events:
        def __init__(self, scope: str) -> None:
            self._closed = threading.Event()

        def next(self) -> None:
            self._closed.wait()

        def close(self) -> None:
            self._closed.set()

    core, pool = types.ModuleType("clutch._core"), types.ModuleType("clutch.pool")
    for made in (Plane, Fronts, Events):
        setattr(core, made.__name__, made)
    pool.Pool = Pool  # type: ignore[attr-defined]

    monkeypatch.setitem(sys.modules, "clutch._core", core)
    monkeypatch.setattr(clutch, "_core", core, raising=False)
    monkeypatch.setitem(sys.modules, "clutch.pool", pool)
    return scene


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
    starts = ["a starts", "fronts start: ['a'] ['http']", "a 3 ready"]
    assert scene.events == [*starts, "fronts stop 5", "a has 5 s", *END]


def test_failure_68_fronts_and_pools_share_one_grace(scene: Scene, tmp_path: Path) -> None:
    """A pool does not wait for requests of others beyond its own grace, and the time of the fronts is its own, too."""
    file = tmp_path / "clutch.toml"
    file.write_text(
        '[pools.a]\ntarget = "x"\ngrace = "400ms"\n[pools.b]\ntarget = "x"\ngrace = "600s"\n[fronts.http]\n'
    )
    seen: list[bool] = []
    scene.when_fronts_stop = lambda: seen.append(scene.stopping.wait(30))
    scene.when_ready_of = {"a": terminate}
    assert Server(config.load(file, environ={})).serve() == 0
    assert seen == [True], "its requests run on, and the pool with the shorter grace ends nevertheless"
    assert scene.events.index("fronts stop 600") < scene.events.index("a has 0 s") < scene.events.index("b has 600 s")


def test_a_pool_that_can_never_be_ready_ends_the_run_with_2(scene: Scene, loaded: config.Config) -> None:
    def broken() -> None:
        raise ConfigError("no module named x")

    scene.when_ready = broken
    assert Server(loaded).serve() == 2
    assert scene.events[-3:] == END


def test_a_pool_that_is_not_required_is_only_told(
    scene: Scene, loaded: config.Config, caplog: pytest.LogCaptureFixture
) -> None:
    """The others serve."""
    loaded.pools[0].values["required"] = False

    def broken() -> None:
        terminate()
        raise ConfigError("no module named x")

    scene.when_ready = broken
    logs.log.propagate = True
    with caplog.at_level(logging.ERROR, "clutch"):
        assert Server(loaded).serve() == 0
    assert "no module named x" in caplog.text


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
    assert scene.events[-1:] == ["a is gone"]
    said = caplog.text
    assert said.index("cannot start: 127.0.0.1:8080: address in use") < said.index("stopped")


def test_another_signal_ends_at_once_and_the_same_one_is_the_first_for_a_moment(
    scene: Scene, loaded: config.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()
    codes: list[int] = []

    def end(code: int) -> None:
        codes.append(code)
        ended.set()

    monkeypatch.setattr(os, "_exit", end)

    def stop_slowly(_pool: Any) -> None:
        terminate()
        send(signal.SIGINT)()
        ended.wait(10)

    scene.when_ready = terminate
    monkeypatch.setattr(sys.modules["clutch.pool"].Pool, "shutdown", stop_slowly)
    assert Server(loaded).serve() == 0
    assert codes == [128 + signal.SIGINT]


# HUP, and the service manager.


def hang_up() -> None:
    os.kill(os.getpid(), signal.SIGHUP)


def test_hup_loads_the_code_anew(scene: Scene, loaded: config.Config) -> None:
    scene.when_ready = hang_up
    scene.when_reloaded = terminate
    assert Server(loaded).serve() == 0
    assert scene.events[2:] == ["a 3 ready", "a reloads", "fronts stop 5", "a has 5 s", *END]


def test_code_that_does_not_import_is_told_and_it_serves_on(
    scene: Scene, loaded: config.Config, caplog: pytest.LogCaptureFixture
) -> None:
    tries = iter((ConfigError("SyntaxError in tools.py"), None))

    def reloaded() -> None:
        if (error := next(tries)) is None:
            terminate()
        else:
            hang_up()
            raise error

    scene.when_ready = hang_up
    scene.when_reloaded = reloaded
    logs.log.propagate = True
    with caplog.at_level(logging.INFO, "clutch"):
        assert Server(loaded).serve() == 0
    assert "SyntaxError in tools.py\npool a: the old code stays in use" in caplog.text
    assert scene.events.count("a reloads") == 2


class Manager:
    """The service manager's end of a notify socket."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address.replace("@", "\0", 1))
        self.socket.settimeout(30)

    def heard(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self.socket.recv(4096).decode().splitlines())


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    address = str(tmp_path / "notify") if request.param == "path" else f"@clutch-test-{os.getpid()}"
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    manager = Manager(address)
    yield manager
    manager.socket.close()


def test_the_service_manager_hears_of_every_turn(scene: Scene, loaded: config.Config, manager: Manager) -> None:
    scene.when_ready = hang_up
    scene.when_reloaded = terminate
    assert Server(loaded).serve() == 0
    assert "NOTIFY_SOCKET" not in os.environ, "workers have nothing to say there"
    assert manager.heard() == {"STATUS": "starting a"}
    heard = [manager.heard() for _ in range(4)]
    assert sorted(one.get("STATUS", "") for one in heard) == ["reloading", "serving", "serving", "stopping"]
    assert [one for one in heard if "STOPPING" in one] == [{"STOPPING": "1", "STATUS": "stopping"}]
    (reloading,) = (one for one in heard if "RELOADING" in one)
    assert 0 < int(reloading["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
    assert [one.get("READY") for one in heard].count("1") == 2


def test_it_hears_ready_only_when_fronts_listen_and_what_is_required_is_ready(
    scene: Scene, tmp_path: Path, manager: Manager
) -> None:
    file = tmp_path / "clutch.toml"
    file.write_text('[pools.a]\ntarget = "x"\n[pools.b]\ntarget = "x"\nrequired = false\n[fronts.http]\n')
    not_yet = threading.Event()

    def optional() -> None:
        assert scene.events[2].startswith("fronts start")
        assert manager.heard() == {"STATUS": "starting a"}
        manager.socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            manager.heard()
        manager.socket.settimeout(30)
        not_yet.set()
        assert manager.heard() == {"READY": "1", "STATUS": "serving"}
        terminate()

    scene.when_ready_of = {"a": lambda: assert_soon(not_yet), "b": optional}
    assert Server(config.load(file, environ={})).serve() == 0
    assert manager.heard() == {"STOPPING": "1", "STATUS": "stopping"}


def assert_soon(event: threading.Event) -> None:
    assert event.wait(30)


def test_a_service_manager_that_is_not_there_does_not_matter(
    scene: Scene, loaded: config.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/does/not/exist")
    scene.when_ready = terminate
    assert Server(loaded).serve() == 0


# Asked by the control socket.


@pytest.mark.parametrize("times", [1, 3])
def test_asked_to_stop(scene: Scene, loaded: config.Config, times: int) -> None:
    """However often."""
    server = Server(loaded)

    def ask() -> None:
        for _ in range(times):
            assert client.post(scene.control, "/stop")["pid"] == os.getpid()

    scene.when_ready = ask
    assert server.serve() == 0
    assert scene.events[-3:] == END
    assert not scene.control.exists()


def test_without_a_place_for_the_control_socket_it_serves_all_the_same(
    scene: Scene,
    loaded: config.Config,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "clutch").write_text("a file")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    scene.when_ready = terminate
    logs.log.propagate = True
    with caplog.at_level(logging.INFO, "clutch"):
        assert Server(loaded).serve() == 0
    assert "no control socket" in caplog.text


def test_but_not_without_the_place_that_was_asked_for(scene: Scene, loaded: config.Config, tmp_path: Path) -> None:
    assert Server(loaded, tmp_path / "nowhere" / "socket").serve() == 1
    assert scene.events == []


# Signals as gunicorn's: `clutch serve`.


def send(*numbers: int) -> Callable[[], None]:
    def sends() -> None:
        for number in numbers:
            os.kill(os.getpid(), number)

    return sends


def serve(config: config.Config, **more: Any) -> Server:
    return Server(config, actions=OF_SERVE, **more)


@pytest.mark.parametrize(
    ("number", "grace"), [(signal.SIGTERM, "5"), (signal.SIGINT, "0"), (signal.SIGQUIT, "0")], ids=lambda x: str(x)
)
def test_term_has_a_grace_int_and_quit_have_none(
    scene: Scene, loaded: config.Config, number: signal.Signals, grace: str
) -> None:
    scene.when_ready = send(number)
    assert serve(loaded).serve() == 0
    assert scene.events[-5:] == [f"fronts stop {grace}", f"a has {grace} s", *END]


def test_run_gives_int_its_grace(scene: Scene, loaded: config.Config) -> None:
    scene.when_ready = send(signal.SIGINT)
    assert Server(loaded).serve() == 0
    assert "fronts stop 5" in scene.events


def test_one_worker_more_and_one_less(scene: Scene, loaded: config.Config) -> None:
    """Each signal is waited for: of two equal ones that are pending a process hears one."""
    later = [send(signal.SIGTTIN), send(signal.SIGTTOU), terminate]
    scene.when_scaled = lambda: later.pop(0)()
    scene.when_ready = send(signal.SIGTTIN)
    assert serve(loaded).serve() == 0
    scaled = [event for event in scene.events if "scales" in event]
    assert scaled == ["a scales to 4-4", "a scales to 5-5", "a scales to 4-4"]


def test_a_pool_that_cannot_scale_is_told_and_serves_on(
    scene: Scene, loaded: config.Config, caplog: pytest.LogCaptureFixture
) -> None:
    def closed() -> None:
        terminate()
        raise PoolClosed("it stops")

    scene.when_scaled = closed
    scene.when_ready = send(signal.SIGTTIN)
    logs.log.propagate = True
    assert serve(loaded).serve() == 0
    assert "pool a: it stops" in caplog.text


@pytest.mark.parametrize(
    ("stats", "step", "expected"),
    [
        ({"min": 2, "max": 2, "target": 2}, 1, (3, 3)),
        ({"min": 2, "max": 2, "target": 2}, -1, (1, 1)),
        ({"min": 1, "max": 1, "target": 1}, -1, (1, 1)),
        ({"min": 1, "max": 8, "target": 3}, 1, (4, 8)),
        ({"min": 1, "max": 8, "target": 3}, -1, (1, 2)),
        ({"min": 1, "max": 8, "target": 8}, 1, (9, 9)),
        ({"min": 4096, "max": 4096, "target": 4096}, 1, (4096, 4096)),
    ],
)
def test_bounds_that_make_one_more_or_less(stats: dict[str, int], step: int, expected: tuple[int, int]) -> None:
    assert bounds(stats, step) == expected


def test_logs_are_opened_anew_where_the_front_can(
    scene: Scene, loaded: config.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reopen(_fronts: Any) -> None:
        scene.events.append("logs")
        terminate()

    monkeypatch.setattr(sys.modules["clutch._core"].Fronts, "reopen_logs", reopen, raising=False)
    scene.when_ready = send(signal.SIGUSR1)
    assert serve(loaded).serve() == 0
    assert "logs" in scene.events


@pytest.mark.parametrize("number", [signal.SIGUSR2, signal.SIGWINCH])
def test_what_a_signal_cannot_do_is_said(
    scene: Scene,
    loaded: config.Config,
    number: signal.Signals,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("clutch.cli.run.has_terminal", lambda: False)
    said: list[str] = []

    class WhenSaid(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())
            terminate()

    handler = WhenSaid(logging.WARNING)
    logs.log.addHandler(handler)
    scene.when_ready = send(number)
    try:
        assert serve(loaded).serve() == 0
    finally:
        logs.log.removeHandler(handler)
    assert [number.name in text for text in said] == [True]


def test_a_terminal_whose_window_changes_asks_for_nothing(
    scene: Scene, loaded: config.Config, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("clutch.cli.run.has_terminal", lambda: True)
    logs.log.propagate = True

    def window_changes() -> None:
        assert server.carry_out(signal.SIGWINCH) is False
        terminate()

    scene.when_ready = window_changes
    server = serve(loaded)
    assert server.serve() == 0
    assert "WINCH" not in caplog.text


def test_the_pid_is_in_a_file_while_it_lives(scene: Scene, loaded: config.Config, tmp_path: Path) -> None:
    file = tmp_path / "web.pid"
    file.write_text("4000000\n")

    def look() -> None:
        assert file.read_text() == f"{os.getpid()}\n"
        terminate()

    scene.when_ready = look
    assert serve(loaded, pidfile=Pidfile(file)).serve() == 0
    assert list(tmp_path.glob("web.pid*")) == []


def test_a_pid_file_of_a_process_that_lives_is_left_alone(scene: Scene, loaded: config.Config, tmp_path: Path) -> None:
    file = tmp_path / "web.pid"
    file.write_text(f"{os.getppid()}\n")
    assert serve(loaded, pidfile=Pidfile(file)).serve() == 1
    assert (file.read_text(), scene.events) == (f"{os.getppid()}\n", [])


def test_a_hurried_end_leaves_no_files(
    scene: Scene, loaded: config.Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()

    def end(_code: int) -> None:
        assert not (tmp_path / "web.pid").exists()
        ended.set()

    def stop_slowly(_pool: Any) -> None:
        os.kill(os.getpid(), signal.SIGQUIT)
        assert ended.wait(10)

    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(sys.modules["clutch.pool"].Pool, "shutdown", stop_slowly)
    scene.when_ready = terminate
    assert serve(loaded, pidfile=Pidfile(tmp_path / "web.pid")).serve() == 0
    assert ended.is_set()
