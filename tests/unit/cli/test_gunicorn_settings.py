"""`clutch serve`: gunicorn's flags, variables and gunicorn.conf.py, and the configuration that they become."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from clutch._dispatcher import logs
from clutch._gunicorn.peers import ADDRESS_FLAGS, ALIASES, OF_OTHERS, WITHOUT_EFFECT, WithoutEffect
from clutch._gunicorn.settings import HOOKS, REFUSED, SETTINGS, Refused
from clutch._gunicorn.sources import Layers, read, setting_flags, typed_settings
from clutch._gunicorn.translation import OWN_PROFILES, PROFILES, Serve, bind_of, configure
from clutch._process.systemd import take_listening
from clutch.cli import program
from clutch.config import Config, limits
from clutch.errors import ConfigError, Problem

CPUS = 4
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty folder, no gunicorn.conf.py, a known number of CPUs; a log as it was before."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(limits, "usable_cpus", lambda: CPUS)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    before = logs.log.handlers[:], logs.log.propagate, logs.log.level
    yield
    logs.log.handlers[:], logs.log.propagate = before[:2]
    logs.log.setLevel(before[2])


def layers_of(flags: str | list[str] = "", **environ: str) -> Layers:
    command = setting_flags(click.Command("serve"))
    with command.make_context("serve", flags.split() if isinstance(flags, str) else flags) as context:
        return read(typed_settings(context), environ)


def made(flags: str | list[str] = "", *, environ: Mapping[str, str] | None = None, **serve: Any) -> Config:
    return made_with_warnings(flags, environ=environ, **serve)[0]


def made_with_warnings(
    flags: str | list[str] = "", *, environ: Mapping[str, str] | None = None, **serve: Any
) -> tuple[Config, list[str]]:
    environ = environ or {}
    return configure(Serve(**{"app": "shop.web:app", **serve}), layers_of(flags, **environ), environ)


def problems(flags: str | list[str] = "", **more: Any) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        made(flags, **more)
    return list(caught.value.problems)


def clutch(*arguments: str, **more: Any) -> Result:
    return CliRunner().invoke(program, ["serve", *arguments], prog_name="clutch", **more)


def conf(text: str, name: str = "gunicorn.conf.py") -> Path:
    file = Path(name)
    file.write_text(text)
    return file.absolute()


# Each flag, and where it goes


def test_an_app_alone_gets_every_default() -> None:
    config = made()
    (pool,) = config.pools
    assert (pool.name, pool.values["target"]) == ("web", "shop.web:app")
    assert pool.core["shape"] == {"profile": "async", "workers": 1, "threads": 1, "tasks": 256}
    assert pool.core["launch"]["app"] == {"kind": "auto", "factory": False, "root_path": "", "lifespan": "auto"}
    assert pool.core["launch"]["profile_given"] is False
    assert pool.core["launch"]["sys_path"] == [str(Path.cwd())]
    assert list(config.fronts) == ["serve"]
    assert config.fronts["serve"]["bind"] == ["127.0.0.1:8000"]


SHAPES = {
    "-w 2": ("async", 2, 1, 256, False),
    "--workers=3": ("async", 3, 1, 256, False),
    "-w 2 --threads 4": ("async", 2, 4, 256, False),
    "-w 2 -k sync": ("process", 2, 1, 1, True),
    "-w 2 -k sync --threads 1": ("process", 2, 1, 1, True),
    "-w 2 -k sync --threads 3": ("thread", 2, 3, 1, True),
    "-w 2 -k gthread": ("thread", 2, 1, 1, True),
    "-w 2 -k gthread --threads 5": ("thread", 2, 5, 1, True),
    "-w 2 -k gevent": ("greenlet", 2, 1, 256, True),
    "-w 2 -k gevent --worker-connections 50": ("greenlet", 2, 1, 50, True),
    "-w 2 -k uvicorn.workers.UvicornWorker": ("async", 2, 1, 256, True),
    "-w 2 -k uvicorn_worker.UvicornWorker": ("async", 2, 1, 256, True),
    "-w 2 --worker-class asgi --worker-connections 9": ("async", 2, 1, 9, True),
    "-w 2 --worker-connections 9": ("async", 2, 1, 9, False),
    "-w 2 -k process": ("process", 2, 1, 1, True),
    "-w 2 -k thread": ("thread", 2, 8, 1, True),
    "-w 2 -k thread --threads 3": ("thread", 2, 3, 1, True),
    "-w 2 -k async --threads 2": ("async", 2, 2, 256, True),
    "-w 2 -k greenlet": ("greenlet", 2, 1, 256, True),
}


@pytest.mark.parametrize("flags", SHAPES)
def test_shape(flags: str) -> None:
    (pool,) = made(flags).pools
    shape = pool.core["shape"]
    found = (shape["profile"], shape["workers"], shape["threads"], shape["tasks"], pool.core["launch"]["profile_given"])
    assert found == SHAPES[flags]


POOL_SETTINGS = {
    "--max-requests 100": {"recycle_calls": 100, "recycle_jitter": 0.0},
    "--max-requests 100 --max-requests-jitter 50": {"recycle_calls": 150, "recycle_jitter": 50 / 150},
    "--max-requests 0 --max-requests-jitter 50": {"recycle_calls": None, "recycle_jitter": 0.1},
    "--max-requests-jitter 50": {"recycle_calls": None},
    "--graceful-timeout 5": {"grace_ms": 5000},
    "--graceful-timeout 0": {"grace_ms": 1},
    "--graceful-timeout 1m": {"grace_ms": 60_000},
    "--preload": {},
    "--backlog 64": {"queue_limit": 64},
    "-n shop": {"name": "shop"},
    "--name shop.web:1": {"name": "shop-web-1"},
}


@pytest.mark.parametrize("flags", POOL_SETTINGS)
def test_flags_of_the_pool(flags: str) -> None:
    core = made(flags).pools[0].core
    assert {name: core[name] for name in POOL_SETTINGS[flags]} == POOL_SETTINGS[flags]
    assert core["launch"]["preload"] == (True if flags == "--preload" else "auto")


def tls(certificate: str, key: str, **more: str) -> dict[str, str | None]:
    return {"certificate": certificate, "key": key, "client_ca": None, "client_auth": "none", **more}


FRONT_SETTINGS = {
    "-t 5": {"timeout_ms": 5000},
    "--timeout 0": {"timeout_ms": None, "silence_ms": None},
    "--timeout 2.5": {"timeout_ms": 2500, "silence_ms": 2500},
    "--keep-alive 5": {"keep_alive_ms": 5000, "connection_requests_max": None},
    "--keep-alive 0": {"keep_alive_ms": 75_000, "connection_requests_max": 1},
    "--access-logfile -": {"access_log": "-"},
    "--forwarded-allow-ips *": {"forwarded_allow": ["*"]},
    "--forwarded-allow-ips 10.0.0.0/8,::1": {"forwarded_allow": ["10.0.0.0/8", "::1"]},
    "--proxy-protocol": {"proxy_protocol": True},
    "--proxy-protocol v2": {"proxy_protocol": True},
    "--proxy-protocol=off": {"proxy_protocol": False},
    "--limit-request-fields 20": {"headers_max": 20},
    "--limit-request-line 8190": {"head_bytes_max": 65_536},
    "--limit-request-line 0": {"head_bytes_max": 65_536},
    "--limit-request-field_size 100000 --limit-request-line 8000": {"head_bytes_max": 108_000},
    "--root-path /shop": {"root_path": "/shop"},
    "--websocket-max-message-size 1024": {"message_bytes_max": 1024},
    "--http2-max-concurrent-streams 7": {"streams_max": 7},
    "--dispatch connection": {"dispatch": "connection"},
    "--certfile /c.pem --keyfile /k.pem": {"tls": tls("/c.pem", "/k.pem")},
    "--certfile /both.pem": {"tls": tls("/both.pem", "/both.pem")},
    "--certfile /c --ca-certs /a --cert-reqs 2": {"tls": tls("/c", "/c", client_ca="/a", client_auth="required")},
    "--certfile /c --ca-certs /a --cert-reqs optional": {
        "tls": tls("/c", "/c", client_ca="/a", client_auth="optional")
    },
    "--certfile /c --cert-reqs 0": {"tls": tls("/c", "/c")},
    "--access-logfile - --access-logformat json": {"access_log": "-", "access_log_format": "json"},
    "--access-logformat %(h)s|%({X-Id}i)s": {
        "access_log_format": {"line": [{"fact": "client"}, {"text": "|"}, {"request_header": "x-id"}]}
    },
    "-b :80": {"bind": ["0.0.0.0:80"]},
    "-b 127.0.0.1:1 -b [::1]:2": {"bind": ["127.0.0.1:1", "[::1]:2"]},
    "--bind h:1,h:2": {"bind": ["h:1", "h:2"]},
    "-b unix:/run/a.sock": {"bind": ["unix:/run/a.sock"]},
    "-b fd://5": {"bind": ["fd:5"]},
}


def options_of(front: dict[str, Any]) -> dict[str, Any]:
    """Options of a front, those of its connections among them."""
    return {**front, **front["connection"]}


@pytest.mark.parametrize("flags", FRONT_SETTINGS)
def test_flags_of_the_front(flags: str) -> None:
    core = options_of(made(flags).fronts["serve"])
    assert {name: core[name] for name in FRONT_SETTINGS[flags]} == FRONT_SETTINGS[flags]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("shop.example", "shop.example:8000"),
        ("127.0.0.1", "127.0.0.1:8000"),
        ("[::1]", "[::1]:8000"),
        ("[::1]:80", "[::1]:80"),
        ("tcp://h:80", "h:80"),
        ("tcp://h", "h:8000"),
        ("unix:a.sock", "unix:a.sock"),
        ("unix:///a.sock", "unix:/a.sock"),
        ("unix://a.sock", "unix:a.sock"),
        ("unix:/a:80", "unix:/a:80"),
        ("fd://3", "fd:3"),
    ],
)
def test_addresses_as_gunicorn_writes_them(written: str, meant: str) -> None:
    assert bind_of(written) == meant


@pytest.mark.parametrize(
    ("flags", "kind", "lifespan"),
    [
        ("--interface wsgi", "wsgi", "auto"),
        ("--interface asgi3 --lifespan on", "asgi", "on"),
        ("--interface asgi2 --asgi-lifespan off", "asgi2", "off"),
        ("--interface asginl", "asgi", "off"),
    ],
)
def test_what_the_app_speaks(flags: str, kind: str, lifespan: str) -> None:
    app = made(flags).pools[0].core["launch"]["app"]
    assert (app["kind"], app["lifespan"]) == (kind, lifespan)


def test_what_no_app_here_speaks() -> None:
    with pytest.raises(ConfigError, match="auto, asgi, asgi3, asgi2, wsgi, asginl"):
        made("--interface rsgi")


def test_paths_are_meant_from_the_working_folder() -> None:
    config = made("-b unix:run/web.sock --access-logfile log/access --certfile c.pem --pythonpath lib,/x")
    here = Path.cwd()
    serve = options_of(config.fronts["serve"])
    assert (serve["bind"], serve["access_log"]) == ([f"unix:{here}/run/web.sock"], f"{here}/log/access")
    assert serve["tls"]["certificate"] == f"{here}/c.pem"
    assert config.pools[0].core["env"]["PYTHONPATH"] == f"{here}/lib:/x"


def test_variables_of_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/own")
    env = made("-e A=1 --env B=x=y --pythonpath /lib").pools[0].core["env"]
    assert (env["A"], env["B"], env["PYTHONPATH"]) == ("1", "x=y", "/lib:/own")
    assert "PYTHONPATH" not in made("-e A=1").pools[0].core["env"]


@pytest.mark.parametrize(
    ("app", "target", "factory"),
    [
        ("shop.web", "shop.web", False),
        ("shop.web:make", "shop.web:make", False),
        ("shop.web:make()", "shop.web:make", True),
        ("shop.web:Shop.make()", "shop.web:Shop.make", True),
    ],
)
def test_a_call_is_a_factory(app: str, target: str, factory: bool) -> None:
    pool = made(app=app).pools[0]
    assert (pool.values["target"], pool.core["launch"]["app"]["factory"]) == (target, factory)
    assert made(app=app, factory=True).pools[0].core["launch"]["app"]["factory"] is True


def test_a_handler_of_connections() -> None:
    config = made("-w 3 -b :7000 -b unix:/s -k gevent", app="shop.echo:handle", tcp=True)
    (pool,) = config.pools
    assert (pool.name, pool.core["launch"]["app"]) == ("tcp", {"kind": "tcp", "factory": False})
    assert pool.core["shape"]["profile"] == "greenlet"
    assert config.fronts == {
        "tcp": {"kind": "tcp", "pool": "tcp", "bind": ["0.0.0.0:7000", "unix:/s"], "connections_max": 10_000}
    }
    assert made(app="shop.echo:handle", tcp=True).fronts["tcp"]["bind"] == ["127.0.0.1:8000"]


def test_any_other_option_by_its_place() -> None:
    config = made("-n shop", settings=("pools.shop.workers={min=1,max=3}", "fronts.admin.bind=127.0.0.1:0"))
    assert (config.pools[0].core["workers_min"], config.pools[0].core["shape"]["workers"]) == (1, 3)
    assert config.fronts["admin"]["bind"] == "127.0.0.1:0"


# Layers: defaults < gunicorn.conf.py < GUNICORN_CMD_ARGS < command line


PRECEDENCE = [
    ({}, "", "", 1),
    ({"WEB_CONCURRENCY": "2"}, "", "", 2),
    ({"WEB_CONCURRENCY": "2"}, "workers = 3", "", 3),
    ({"WEB_CONCURRENCY": "2", "GUNICORN_CMD_ARGS": "--workers=5"}, "workers = 3", "", 5),
    ({"WEB_CONCURRENCY": "2", "GUNICORN_CMD_ARGS": "-w 5"}, "workers = 3", "-w 6", 6),
    ({"GUNICORN_CMD_ARGS": "-w 5", "CLUTCH_POOLS_WEB_WORKERS": "7"}, "workers = 3", "", 7),
    ({"GUNICORN_CMD_ARGS": "-w 5", "CLUTCH_POOLS_WEB_WORKERS": "7"}, "workers = 3", "-w 6", 6),
]


@pytest.mark.parametrize(("environ", "file", "flags", "workers"), PRECEDENCE)
def test_the_later_layer_wins(environ: dict[str, str], file: str, flags: str, workers: int) -> None:
    conf(file)
    assert made(flags, environ=environ).pools[0].core["shape"]["workers"] == workers


def test_the_command_line_wins_in_a_pool_that_a_file_has_named() -> None:
    conf("proc_name = 'shop'\n")
    environ = {
        "CLUTCH_POOLS_SHOP_WORKERS": "7",
        "CLUTCH_POOLS_SHOP_RECYCLE_CALLS": "5",
        "CLUTCH_POOLS_SHOP_GRACE": "1s",
    }
    core = made("-w 6 --max-requests 8", environ=environ).pools[0].core
    assert (core["shape"]["workers"], core["recycle_calls"], core["grace_ms"]) == (6, 8, 1000)


def test_layers_are_merged_before_they_are_understood() -> None:
    conf("max_requests = 100\nthreads = 4\n")
    core = made("-k gthread", environ={"GUNICORN_CMD_ARGS": "--max-requests-jitter 100"}).pools[0].core
    assert (core["recycle_calls"], core["recycle_jitter"], core["shape"]["threads"]) == (200, 0.5, 4)


@pytest.mark.parametrize(
    ("environ", "flags", "bind"),
    [
        ({"PORT": "5000"}, "", ["0.0.0.0:5000"]),
        ({"PORT": "5000"}, "-b h:1", ["h:1"]),
        ({"PORT": "5000", "GUNICORN_CMD_ARGS": "--bind=h:2"}, "", ["h:2"]),
        ({"PORT": "5000", "CLUTCH_FRONTS_SERVE_BIND": "h:3"}, "", ["h:3"]),
        ({"PORT": ""}, "", ["127.0.0.1:8000"]),
    ],
)
def test_port(environ: dict[str, str], flags: str, bind: list[str]) -> None:
    assert made(flags, environ=environ).fronts["serve"]["bind"] == bind


@pytest.mark.parametrize(
    ("environ", "flags", "bind"),
    [
        ({}, "", ["fd:3", "fd:4"]),
        ({"PORT": "5000"}, "", ["fd:3", "fd:4"]),
        ({}, "-b h:1", ["fd:3", "fd:4", "h:1"]),
    ],
)
def test_sockets_of_the_service_manager(environ: dict[str, str], flags: str, bind: list[str]) -> None:
    assert made(flags, environ=environ, handed_over=(3, 4)).fronts["serve"]["bind"] == bind


def test_forwarded_allow_ips_of_the_environment() -> None:
    environ = {"FORWARDED_ALLOW_IPS": "10.1.1.1, 10.1.1.2"}
    assert made(environ=environ).fronts["serve"]["forwarded_allow"] == ["10.1.1.1", "10.1.1.2"]
    assert made("--forwarded-allow-ips *", environ=environ).fronts["serve"]["forwarded_allow"] == ["*"]
    assert list(made(environ=environ, app="a:b", tcp=True).fronts) == ["tcp"], "it lies about, and is not for a handler"


# gunicorn.conf.py


def test_plain_values_of_a_file() -> None:
    conf(
        """
import multiprocessing
import os

class Worker: pass
Worker.__module__, Worker.__qualname__ = "uvicorn_worker", "UvicornWorker"

bind = ["0.0.0.0:1", "unix:/s"]
workers = len([1, 2]) * 2 + 1
worker_class = Worker
max_requests = 1000
max_requests_jitter = 1000
timeout = 120
graceful_timeout = 60
keepalive = 5
preload_app = False
raw_env = ["A=1"]
proc_name = "shop"
accesslog = "-"
errorlog = None
forwarded_allow_ips = "*"
wsgi_app = "shop.web:app"
"""
    )
    layers = layers_of()
    config, warnings = configure(Serve(None), layers, {})
    (pool,) = config.pools
    assert warnings == []
    assert (pool.name, pool.values["target"], pool.core["shape"]["workers"]) == ("shop", "shop.web:app", 5)
    assert (pool.core["shape"]["profile"], pool.core["launch"]["profile_given"]) == ("async", True)
    assert (pool.core["recycle_calls"], pool.core["recycle_jitter"], pool.core["grace_ms"]) == (2000, 0.5, 60_000)
    assert (pool.core["launch"]["preload"], pool.core["env"]["A"]) == (False, "1")
    serve = options_of(config.fronts["serve"])
    assert (serve["bind"], serve["timeout_ms"], serve["keep_alive_ms"]) == (["0.0.0.0:1", "unix:/s"], 120_000, 5000)
    assert (serve["access_log"], serve["forwarded_allow"]) == ("-", ["*"])


def test_the_file_runs_as_under_gunicorn(tmp_path: Path) -> None:
    (tmp_path / "shop_sizes.py").write_text("WORKERS = 9\n")
    file = conf("from shop_sizes import WORKERS as workers\nassert __name__ == '__config__'\nassert __file__\n")
    before = sys.path[:]
    try:
        assert made().pools[0].core["shape"]["workers"] == 9
        file.rename(tmp_path / "other.py")
        assert made().pools[0].core["shape"]["workers"] == 1
        for place in ("other.py", "file:other.py", str(tmp_path / "other.py"), "python:shop_settings"):
            (tmp_path / "shop_settings.py").write_text("workers = 9\n")
            assert made(f"-c {place}").pools[0].core["shape"]["workers"] == 9
        assert made(environ={"GUNICORN_CMD_ARGS": "-c other.py"}).pools[0].core["shape"]["workers"] == 9
    finally:
        sys.modules.pop("shop_sizes", None)
        sys.modules.pop("shop_settings", None)
    assert sys.path == before


def test_hooks_and_what_is_no_setting_are_named() -> None:
    conf(
        "def post_fork(server, worker): ...\ndef helper(): ...\nworker = 3\nhour = 3600\n_private = 1\nsyslog = True\n"
    )
    _, warnings = made_with_warnings()
    assert warnings == [
        "gunicorn.conf.py: syslog is not supported: logs go to stderr; the access log and the output of workers to "
        "stdout: let the service manager collect them",
        "gunicorn.conf.py: the hook post_fork is not supported: use @clutch.on_start in the app's module",
        "gunicorn.conf.py: worker is not a setting and has no effect; did you mean workers?",
        "gunicorn.conf.py: hour is not a setting and has no effect",
    ]


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_is_named(hook: str) -> None:
    conf(f"def {hook}(*_): ...\n")
    (warning,) = made_with_warnings()[1]
    assert hook in warning and HOOKS[hook] in warning


@pytest.mark.parametrize("refused", REFUSED, ids=lambda refused: refused.name)
def test_a_setting_that_has_no_place_is_named(refused: Refused) -> None:
    """What it would be unsafe to go on without is an error."""
    conf(f"{refused.name} = 'x'\n")
    if refused.matters:
        (problem,) = problems()
        assert (problem.place, problem.source) == (refused.name, "gunicorn.conf.py")
        assert refused.instead in problem.what
    else:
        (warning,) = made_with_warnings()[1]
        assert refused.name in warning and refused.instead in warning
    conf(f"{refused.name} = False\n")
    assert made_with_warnings()[1] == []


def test_a_file_that_fails() -> None:
    conf("workers = 1\nraise RuntimeError('no database')\n")
    with pytest.raises(ConfigError, match=r"gunicorn\.conf\.py failed:(.|\n)*no database"):
        made()
    conf("workers = (\n")
    with pytest.raises(ConfigError, match="SyntaxError"):
        made()
    (problem,) = problems("-c none.py")
    assert (problem.place, "not found" in problem.what) == ("none.py", True)


def test_wrong_values_of_all_layers_are_reported_at_once() -> None:
    conf("threads = 'many'\ntimeout = True\nreload = 1\n")
    found = problems("-w 0 --log-level loud", environ={"GUNICORN_CMD_ARGS": "--backlog x", "WEB_CONCURRENCY": "1.5"})
    assert {(problem.place, problem.source) for problem in found} == {
        ("WEB_CONCURRENCY", None),
        ("--backlog", "GUNICORN_CMD_ARGS"),
        ("--workers", None),
        ("--log-level", None),
        ("threads", "gunicorn.conf.py"),
        ("timeout", "gunicorn.conf.py"),
        ("reload", "gunicorn.conf.py"),
    }


# What is refused


@pytest.mark.parametrize(
    ("flags", "place", "hint"),
    [
        ("-k eventlet", "--worker-class", "gevent"),
        ("-k tornado", "--worker-class", "WSGIContainer"),
        ("-k gtread", "--worker-class", "did you mean gthread?"),
        ("-w 99999", "--workers", "4_096"),
        ("-t -1", "--timeout", '0 or "none": no limit'),
        ("-e A", "--env", "NAME=VALUE"),
        ("-n 1a", "--name", "a letter"),
        ("-b 8000", "fronts.serve.bind", "host:port"),
        ("-b h:99999", "fronts.serve.bind", "[--bind]"),
        ("--proxy-protocol v3", "--proxy-protocol", "off, v1, v2, auto"),
        ("--keyfile k", "fronts.serve.tls.certificate", "tls.key is given"),
        ("--certfile c --cert-reqs 1", "fronts.serve.tls.client_ca", "tls.client_auth is given"),
        ("--cert-reqs 3", "--cert-reqs", "2 or required"),
        ("--access-logformat %(x)s", "fronts.serve.access_log_format", "%({header}i)s"),
        ("--forwarded-allow-ips x", "fronts.serve.forwarded_allow", "10.0.0.0/8"),
        ("--root-path shop", "fronts.serve.root_path", "[--root-path]"),
        ("-k greenlet --threads 2", "pools.web.threads", "profile greenlet has one"),
    ],
)
def test_refused(flags: str, place: str, hint: str) -> None:
    (problem,) = problems(flags)
    assert problem.place == place
    assert hint in str(problem)


@pytest.mark.parametrize(
    ("app", "hint"),
    [
        ("shop:make(1)", "app = make(1)"),
        ("shop:make(", "package.module:object"),
        ("shop:a + b()", "module:app"),
        ("shop app", "package.module"),
    ],
)
def test_refused_apps(app: str, hint: str) -> None:
    (problem,) = problems(app=app)
    assert hint in str(problem)


@pytest.mark.parametrize("flags", ["-t 5", "--keep-alive 2", "--certfile c", "--access-logfile -", "--root-path /a"])
def test_flags_about_requests_are_nothing_for_a_handler(flags: str) -> None:
    (problem,) = problems(flags, app="shop:handle", tcp=True)
    assert "--tcp" in problem.what


def test_settings_about_requests_of_a_file_are_named() -> None:
    conf("timeout = 5\nworkers = 2\n")
    config, warnings = made_with_warnings(app="shop:handle", tcp=True)
    assert config.pools[0].core["shape"]["workers"] == 2
    assert warnings == ["timeout, gunicorn.conf.py applies to HTTP requests, and --tcp serves none"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("-k sync --worker-connections 5", "without effect with profile process"),
        ("-k gevent --threads 5", "without effect with profile greenlet"),
        ("-k uvicorn.workers.UvicornWorker --threads 5", "without effect with profile async"),
        ("--limit-request-line 100", "limited as a whole, to 64 KB"),
        ("--certfile c --ca-certs a", "--ca-certs: clients are asked for no certificate"),
    ],
)
def test_what_has_no_effect_is_said(flags: str, words: str) -> None:
    (warning,) = made_with_warnings(flags)[1]
    assert words in warning


@pytest.mark.parametrize(
    "refused", [one for one in (*REFUSED, *OF_OTHERS) if one.flags], ids=lambda refused: refused.name
)
def test_a_flag_that_has_no_place_is_an_error(refused: Refused) -> None:
    for flag in refused.flags:
        arguments = [flag, "1"] if refused.takes_value else [flag]
        done = clutch("shop:app", "--check-config", *arguments)
        assert done.exit_code == 2
        assert f"{refused.flags[-1]} of {refused.whose} is not supported: {refused.instead}" in done.stderr
        done = clutch("shop:app", "--check-config", env={"GUNICORN_CMD_ARGS": " ".join(arguments)})
        assert (done.exit_code, "GUNICORN_CMD_ARGS" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "package.module:app"),
        (("a:b", "--no-such-flag"), "No such option"),
        (("a:b", "c:d"), "extra argument"),
        (("a:b", "--tcp", "--factory"), "--factory"),
        (("a:b", "--chdir", "/nowhere"), "--chdir: cannot change to this folder"),
        (("a:b", "--error-logfile", "/nowhere/log"), "--error-logfile: cannot be written"),
    ],
)
def test_used_wrongly(arguments: tuple[str, ...], words: str) -> None:
    done = clutch(*arguments, "--check-config")
    assert (done.exit_code, words in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize("text", ["--no-such-flag", "shop:app", "'"])
def test_wrong_arguments_in_the_variable(text: str) -> None:
    done = clutch("a:b", "--check-config", env={"GUNICORN_CMD_ARGS": text})
    assert (done.exit_code, "GUNICORN_CMD_ARGS=" in done.stderr) == (2, True)


# The command


def test_check_config_says_what_is_served(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    done = clutch(
        "shop:app", "-w", "2", "-k", "gthread", "-b", "h:1", "-b", "unix:s", "--chdir", "code", "--check-config"
    )
    assert done.exit_code == 0
    assert done.stdout.startswith("no problems; web: shop:app, thread 2 × 1 × 1, Python 3.")
    assert done.stdout.endswith(f"; serve: h:1, unix:{tmp_path}/code/s\n")


@pytest.mark.parametrize(
    ("flags", "shape"),
    [
        ("-w 2", "async 2 × 1 × 256 (or process 2 × 1 × 1, if it is a WSGI app), "),
        ("-w 2 --threads 4", "async 2 × 4 × 256 (or thread 2 × 4 × 1, if it is a WSGI app), "),
        ("-w 2 -k asgi", "async 2 × 1 × 256, "),
        ("-w 2 --tcp", "async 2 × 1 × 256, "),
    ],
)
def test_check_config_says_that_the_profile_is_the_apps_to_choose(flags: str, shape: str) -> None:
    done = clutch("shop:app", *flags.split(), "--check-config")
    assert f"shop:app, {shape}" in done.stdout


def test_warnings_go_to_the_log(tmp_path: Path) -> None:
    conf("def when_ready(server): ...\n")
    done = clutch("shop:app", "--check-config", "--error-logfile", "own.log")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "WARNING gunicorn.conf.py: the hook when_ready" in (tmp_path / "own.log").read_text()
    assert clutch("shop:app", "--check-config", "--log-level", "error").stderr == ""


def test_help_names_every_flag() -> None:
    text = clutch("--help").stdout
    for setting in SETTINGS:
        assert all(flag in text for flag in setting.flags), setting


# Flags and variables of other servers


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("--host 0.0.0.0 --port 80", "-b 0.0.0.0:80"),
        ("--port 80", "-b 127.0.0.1:80"),
        ("--host ::1", "-b [::1]:8000"),
        ("--uds /run/a.sock", "-b unix:/run/a.sock"),
        ("--fd 3", "-b fd://3"),
        ("--access-log --access-log-fmt %(addr)s", "--access-logfile - --access-logformat %(addr)s"),
        ("--app-dir lib --timeout-keep-alive 5", "--pythonpath lib --keep-alive 5"),
        ("--limit-max-requests 9 --limit-max-requests-jitter 1", "--max-requests 9 --max-requests-jitter 1"),
        ("--timeout-graceful-shutdown 3", "--graceful-timeout 3"),
        ("--workers-kill-timeout 3", "--graceful-timeout 3"),
        ("--ssl-certfile c --ssl-keyfile k", "--certfile c --keyfile k"),
        ("--ssl-certificate c --ssl-ca a --ssl-client-verify", "--certfile c --ca-certs a --cert-reqs required"),
        ("--ssl-certfile c --ssl-ca-certs a --ssl-cert-reqs 1", "--certfile c --ca-certs a --cert-reqs 1"),
        ("--ws-max-size 9 --url-path-prefix /a", "--websocket-max-message-size 9 --root-path /a"),
        ("--pid-file p --working-dir /", "-p p --chdir /"),
    ],
)
def test_flags_that_mean_the_same_are_taken(theirs: str, ours: str) -> None:
    assert made(theirs).fronts == made(ours).fronts
    found, expected = (layers_of(flags).given for flags in (theirs, ours))
    assert {name: given.value for name, given in found.items()} == {name: one.value for name, one in expected.items()}


@pytest.mark.parametrize("port", ["abc", "-1", "65536", "٣", "9" * 5000])
def test_a_port_is_a_number(port: str) -> None:
    done = clutch("a:b", "--check-config", "--port", port)
    assert (done.exit_code, "--port: invalid value" in done.stderr) == (2, True), done.stderr


def test_a_bare_number_is_no_file_for_the_process_id() -> None:
    """`-p` is the port in hypercorn and daphne."""
    done = clutch("a:b", "--check-config", "-p", "8080")
    assert (done.exit_code, "--port N sets the port" in done.stderr) == (2, True), done.stderr
    assert layers_of("-p ./8080").value("pidfile") == "./8080"


def test_a_flag_and_its_flag_are_not_both_given() -> None:
    for flags, words in (
        ("-b :1 --port 2", "--port is the same as --bind: give one of them"),
        ("--keep-alive 1 --timeout-keep-alive 2", "--timeout-keep-alive is the same as --keep-alive"),
    ):
        done = clutch("a:b", "--check-config", *flags.split())
        assert (done.exit_code, words in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize("one", WITHOUT_EFFECT, ids=lambda one: one.flag)
def test_flags_without_effect_are_taken_with_a_word(one: WithoutEffect) -> None:
    arguments = [one.flag, "1"] if one.takes_value else [one.flag]
    done = clutch("shop:app", "--check-config", "--log-level", "debug", *arguments)
    level = "WARNING" if one.is_missed else "DEBUG  "
    assert (done.exit_code, f"{level} {one.flag} has no effect: {one.why}" in done.stderr) == (0, True), done.stderr
    assert ("no effect" in clutch("shop:app", "--check-config", *arguments).stderr) == one.is_missed


def test_the_script_name_is_the_root_path() -> None:
    def root_path(flags: str = "", **environ: str) -> str:
        path: str = made(flags, environ=environ).fronts["serve"]["root_path"]
        return path

    assert (root_path(), root_path(SCRIPT_NAME="/shop"), root_path("-e SCRIPT_NAME=/shop")) == ("", "/shop", "/shop")
    assert root_path("--root-path /typed", SCRIPT_NAME="/shop") == "/typed"
    assert root_path("-e SCRIPT_NAME=/typed", SCRIPT_NAME="/shop") == "/typed"


def test_variables_of_other_servers_are_named() -> None:
    environ = {
        "UVICORN_PORT": "1",
        "UVICORN_WORKERS": "2",
        "UVICORN_RELOAD_DIR": "x",
        "GRANIAN_SSL_CERTIFICATE": "c",
        "GRANIAN_LOOP": "rloop",
        "GRANIAN_NEW": "x",
        "UVICORNISH": "x",
    }
    assert made_with_warnings(environ=environ)[1] == [
        "GRANIAN_LOOP is not read: use --loop",
        "GRANIAN_NEW is not read: remove it",
        "GRANIAN_SSL_CERTIFICATE is not read: use --certfile",
        "UVICORN_PORT is not read: use -b HOST:PORT, -b unix:PATH or -b fd://N",
        "UVICORN_RELOAD_DIR is not read: use --reload-dir",
        "UVICORN_WORKERS is not read: use --workers",
    ]


def test_the_page_has_every_flag_and_every_hook() -> None:
    page = (ROOT / "docs/serve/gunicorn.md").read_text()
    for setting in SETTINGS:
        assert all(f"`{flag}`" in page for flag in setting.flags), setting
    assert not [hook for hook in HOOKS if "dirty" not in hook and f"`{hook}`" not in page]
    assert not [name for name in PROFILES if "." not in name and f"`{name}`" not in page]


def test_no_flag_is_there_twice() -> None:
    flags = [flag for one in (*SETTINGS, *REFUSED, *OF_OTHERS) for flag in one.flags]
    flags += [*ADDRESS_FLAGS, *(one.flag for one in (*ALIASES, *WITHOUT_EFFECT))]
    names = [one.name for one in (*SETTINGS, *REFUSED, *OF_OTHERS)] + list(HOOKS)
    assert (len(flags), len(names)) == (len(set(flags)), len(set(names)))
    assert set(OWN_PROFILES) == {"process", "thread", "async", "greenlet"}


# LISTEN_FDS


@pytest.mark.parametrize(
    ("variables", "taken"),
    [
        ({}, ()),
        ({"LISTEN_FDS": "1"}, ()),
        ({"LISTEN_PID": "1", "LISTEN_FDS": "1"}, ()),
        ({"LISTEN_PID": "own", "LISTEN_FDS": "x"}, ()),
        ({"LISTEN_PID": "own", "LISTEN_FDS": "0"}, ()),
        ({"LISTEN_PID": "own", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "web"}, (0,)),
    ],
)
def test_descriptors_are_taken_where_they_are_meant(
    variables: dict[str, str], taken: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one is not 3 here, since 3 is in use by this process: one of the test's own."""
    with socket.socket() as handed_over:
        handed_over.set_inheritable(True)
        monkeypatch.setattr("clutch._process.systemd.FIRST_HANDED_OVER", handed_over.fileno())
        for name, value in variables.items():
            monkeypatch.setenv(name, str(os.getpid()) if value == "own" else value)
        assert take_listening() == tuple(handed_over.fileno() + nr for nr in taken)
        assert handed_over.get_inheritable() is not bool(taken)
        assert not {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} & set(os.environ)
