"""Options: how they are read, what is refused and how, and what the core gets."""

from __future__ import annotations

import json
import os
import re
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from clutch import config
from clutch.config import interpreter, limits, pages, pools, values
from clutch.config.interpreter import Interpreter
from clutch.errors import ConfigError, Problem

ROOT = Path(__file__).resolve().parents[3]
FREE_THREADED = Interpreter("/x/python3.13t", "cpython", (3, 13, 5), True, "/x/python3.13t")


def write(folder: Path, text: str, name: str = "clutch.toml") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def problems_of(file: Path, **more: Any) -> dict[str, Problem]:
    with pytest.raises(ConfigError) as caught:
        config.load(file, **{"environ": {}, **more})
    return {problem.place: problem for problem in caught.value.problems}


def load(file: Path, **more: Any) -> config.Config:
    return config.load(file, **{"environ": {}, **more})


SMALL = '[pools.api]\ntarget = "shop.tools"\n'


# What is read


def test_small_config_gets_every_default(tmp_path: Path) -> None:
    loaded = load(write(tmp_path, SMALL))
    (pool,) = loaded.pools
    assert loaded.fronts == {}
    assert pool.core["name"] == "api"
    assert pool.core["queue_limit"] == 1000
    assert pool.core["overflow"] == "reject"
    assert pool.core["shape"] == {
        "profile": "process",
        "workers": limits.usable_cpus(),
        "threads": 1,
        "tasks": 1,
    }
    assert pool.core["python"] == sys.executable


def test_a_range_of_workers_may_be_text() -> None:
    workers = values.worker_range(16)
    assert workers.parse("2-8") == values.WorkerRange(2, 8)
    for wrong in ("8-2", "2-", "2-17", "2..8"):
        with pytest.raises(ValueError):
            workers.parse(wrong)


def test_the_design_example_is_read(tmp_path: Path) -> None:
    text = """
        [pools.api]
        target = "shop.tools"
        profile = "process"
        workers = { min = 2, max = 16 }
        scale = { delay = "50ms" }
        memory_max = "4GB"
        env = { OPENBLAS_NUM_THREADS = "1" }
        deadline = "30s"
        queue = { limit = 500, overflow = "block" }
        recycle = { age = "1h", calls = 10_000, memory = "512MB", jitter = 0.25 }
        [pools.compute]
        target = "shop.models:Model"
        profile = "thread"
        workers = 4
        threads = 25
        [fronts.http]
        bind = "127.0.0.1:0"
        body_max = "1KB"
        [fronts.admin]
        bind = "[::1]:9180"
        token = "secret"
    """
    loaded = load(write(tmp_path, text))
    api, compute = loaded.pools
    assert api.core["shape"]["workers"] == 16
    assert api.values["workers"] == values.WorkerRange(2, 16)
    assert (api.core["workers_min"], compute.core["workers_min"]) == (2, compute.core["shape"]["workers"])
    assert (api.core["scale_delay_ms"], api.core["scale_idle_ms"]) == (50, 30_000)
    assert (api.core["memory_max_bytes"], compute.core["memory_max_bytes"]) == (4 << 30, None)
    assert api.core["env"]["OPENBLAS_NUM_THREADS"] == "1"
    assert (api.core["deadline_ms"], api.core["queue_limit"], api.core["overflow"]) == (30_000, 500, "block")
    assert (api.core["recycle_age_ms"], api.core["recycle_calls"], api.core["recycle_jitter"]) == (
        3_600_000,
        10_000,
        0.25,
    )
    assert api.core["recycle_memory_bytes"] == 512 << 20
    assert compute.slots == 100
    assert loaded.fronts["http"]["body_bytes_max"] == 1024
    unguarded = {"token": None, "token_file": None, "insecure": False}
    assert loaded.fronts["admin"] == {"kind": "admin", **unguarded, "bind": "[::1]:9180", "token": "secret"}


def test_launch_tells_the_zygote_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    file = write(tmp_path, SMALL + "preload = false\n[fronts.http]\n")
    launch = load(file).pools[0].core["launch"]
    assert launch["target"] == "shop.tools"
    assert launch["sys_path"] == [str(tmp_path.resolve()), "/"]
    assert (launch["preload"], launch["gil_policy"], launch["cwd"]) == (False, "warn", "/")
    assert launch["validate"] is True, "an http front reaches it"
    assert load(write(tmp_path, SMALL)).pools[0].core["launch"]["validate"] is False


def test_pyproject_and_upward_search(tmp_path: Path) -> None:
    write(tmp_path, '[project]\nname = "shop"\n[tool.clutch.pools.api]\ntarget = "shop"\n', "pyproject.toml")
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    found = config.find(inner)
    assert found == tmp_path.resolve() / "pyproject.toml"
    assert load(found).pools[0].values["target"] == "shop"
    nearer = write(tmp_path / "a", SMALL)
    assert config.find(inner) == nearer.resolve()


def test_a_pyproject_whose_tool_is_no_table_has_no_config(tmp_path: Path) -> None:
    write(tmp_path, "tool = 3\n", "pyproject.toml")
    write(tmp_path, SMALL)
    inner = tmp_path / "a"
    inner.mkdir()
    write(inner, "tool = 3\n", "pyproject.toml")
    assert config.find(inner) == tmp_path.resolve() / "clutch.toml"


def test_settings_win_over_variables_over_file(tmp_path: Path) -> None:
    file = write(tmp_path, SMALL + "workers = 1\nthreads = 1\n")
    environ = {"CLUTCH_POOLS_API_WORKERS": "2", "CLUTCH_POOLS_API_QUEUE_LIMIT": "7", "CLUTCH_HOME": "not ours"}
    pool = load(file, environ=environ, settings=["pools.api.workers=3", "pools.api.env.A=1"]).pools[0]
    assert (pool.core["shape"]["workers"], pool.core["queue_limit"], pool.core["env"]["A"]) == (3, 7, "1")


def test_a_variable_makes_a_front(tmp_path: Path) -> None:
    loaded = load(write(tmp_path, SMALL), environ={"CLUTCH_FRONTS_ADMIN_BIND": "127.0.0.1:0"})
    assert (loaded.fronts["admin"]["bind"], loaded.fronts["admin"]["token"]) == ("127.0.0.1:0", None)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("250ms", 0.25), ("30s", 30), ("1.5h", 5400), ("2 m", 120), (3, 3), (0.5, 0.5), (timedelta(minutes=1), 60)],
)
def test_durations(text: object, seconds: float) -> None:
    assert values.DURATION.parse(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "5", "5KB", "-1s", -1, 0, True, None, "1e3s", float("nan"), float("inf")])
def test_not_durations(text: object) -> None:
    with pytest.raises(ValueError):
        values.DURATION.parse(text)


@pytest.mark.parametrize(("text", "seconds"), [(0, 0), ("0s", 0), (0.5, 0.5), ("90s", 90), (timedelta(hours=1), 3600)])
def test_times_of_calls(text: object, seconds: float) -> None:
    assert values.CALL_TIME.parse(text) == seconds


@pytest.mark.parametrize("text", ["", "1", -1, True, b"1s", [1], float("nan"), float("inf"), 1e300, 10**30])
def test_no_times_of_calls(text: object) -> None:
    with pytest.raises(ValueError):
        values.CALL_TIME.parse(text)


@pytest.mark.parametrize(("text", "number"), [("512MB", 512 << 20), ("1kb", 1024), ("1.5GiB", 3 << 29), (7, 7)])
def test_sizes(text: object, number: int) -> None:
    assert values.SIZE.parse(text) == number


@pytest.mark.parametrize("text", ["", "5", "5s", "0MB", 0, -1, 1.5, True])
def test_not_sizes(text: object) -> None:
    with pytest.raises(ValueError):
        values.SIZE.parse(text)


# What is refused


FIVE_MISTAKES = """
[pools.api]
target = "shop.tools"
profil = "process"
workers = 0
queue = { limt = 5 }
[pools.batch]
target = "shop"
profile = "thred"
deadline = "soon"
"""


def test_5_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    problems = problems_of(write(tmp_path, FIVE_MISTAKES))
    assert set(problems) == {
        "pools.api.profil",
        "pools.api.workers",
        "pools.api.queue.limt",
        "pools.batch.profile",
        "pools.batch.deadline",
    }
    assert problems["pools.api.profil"].nearest == "profile"
    assert problems["pools.api.queue.limt"].nearest == "queue.limit"
    assert problems["pools.batch.profile"].nearest == "thread"
    assert problems["pools.batch.profile"].allowed == "process, thread, async, greenlet"
    assert problems["pools.api.workers"].given == "0"
    assert "30s" in (problems["pools.batch.deadline"].allowed or "")


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        ("", "pools", "there is no pool"),
        ("[pools.api]\n", "pools.api.target", "is missing"),
        (SMALL + "[jobs]\n", "jobs", "no such table"),
        (SMALL + "[stores.main]\n", "stores.main.url", "is missing"),
        (SMALL + "[fronts.jobs]\n", "fronts.jobs.store", "is missing"),
        (SMALL + '[stores.a]\nurl = "x"\n[fronts.jobs]\nstore = "b"\n', "fronts.jobs.store", "no such store"),
        (SMALL + '[stores.a]\nurl = "x"\n[fronts.jobs]\npool = "b"\n', "fronts.jobs.pool", "no such pool"),
        (SMALL + '[stores.a]\nurl = "x"\n[fronts.jobs]\nqueues = "a:0"\n', "fronts.jobs.queues", "invalid value"),
        (SMALL + '[stores.a]\nurl = "x"\n[fronts.jobs]\nqueues = "a b"\n', "fronts.jobs.queues", "invalid value"),
        (SMALL + "[fronts.grpc]\n", "fronts.grpc", "no such front"),
        (SMALL + "recycle.memory = 0\n", "pools.api.recycle.memory", "invalid value"),
        (SMALL + "[fronts.htp]\n", "fronts.htp", "no such front"),
        (SMALL + '[fronts.web]\nkind = "srve"\n', "fronts.web.kind", "no such kind"),
        (SMALL + '[fronts.web]\nkind = ["serve"]\n', "fronts.web.kind", "no such kind"),
        ("pools = 3\n", "pools", "is not a table"),
        ("[pools]\napi = 3\n", "pools.api", "is not a table"),
        (SMALL + "queue = 3\n", "pools.api.queue", "is not a table"),
        (SMALL + 'python = "./none"\n', "pools.api.python", "is not an executable file"),
        (SMALL + 'python = "no-such-python"\n', "pools.api.python", "is not on the PATH"),
        (SMALL + "threads = 2\n", "pools.api.threads", "profile process has one"),
        (SMALL + 'profile = "greenlet"\nthreads = 2\n', "pools.api.threads", "profile greenlet has one"),
        (SMALL + 'profile = "thread"\ntasks = 2\n', "pools.api.tasks", "profile thread has one"),
        (SMALL + 'env = { "A=B" = "1" }\n', "pools.api.env", "invalid value"),
        ('[pools."a b"]\ntarget = "x"\n', "pools.a b", "not a name for a pool"),
        ('[pools.api]\ntarget = "shop tools"\n', "pools.api.target", "invalid value"),
        (SMALL + '[fronts.http]\nbind = ":80"\n', "fronts.http.bind", "invalid value"),
        (
            SMALL + '[fronts.http]\n[fronts.admin]\nbind = "127.0.0.1:8080"\n',
            "fronts.admin.bind",
            "fronts.http listens",
        ),
    ],
)
def test_refused(tmp_path: Path, text: str, place: str, what: str) -> None:
    assert what in problems_of(write(tmp_path, text))[place].what


def test_a_place_set_by_a_variable_or_setting_says_so(tmp_path: Path) -> None:
    environ = {"CLUTCH_POOLS_API_WORKERS": "many", "CLUTCH_POOLS_API_WORKER": "1"}
    problems = problems_of(write(tmp_path, SMALL), environ=environ, settings=["pools.api.grace=x", "nonsense"])
    assert problems["pools.api.workers"].source == "CLUTCH_POOLS_API_WORKERS"
    assert problems["CLUTCH_POOLS_API_WORKER"].nearest == "CLUTCH_POOLS_API_WORKERS"
    assert problems["pools.api.grace"].source == "--set pools.api.grace=x"
    assert "PLACE=VALUE" in (problems["nonsense"].allowed or "")


def test_a_token_is_never_shown(tmp_path: Path) -> None:
    text = str(problems_of(write(tmp_path, SMALL + "[fronts.http]\ntoken = 12345\n"))["fronts.http.token"])
    assert "12345" not in text


@pytest.mark.parametrize("front", ["http", "admin"])
@pytest.mark.parametrize("bind", ["0.0.0.0:80", "[::]:80", "shop.example:80"])
def test_beyond_loopback_needs_a_token(tmp_path: Path, front: str, bind: str) -> None:
    text = f'{SMALL}[fronts.{front}]\nbind = "{bind}"\n'
    assert "token" in problems_of(write(tmp_path, text))[f"fronts.{front}.bind"].what
    load(write(tmp_path, text), insecure=True)
    load(write(tmp_path, text + "insecure = true\n"))
    load(write(tmp_path, text + 'token = "secret"\n'))


@pytest.mark.parametrize("bind", ["127.0.0.1:80", "localhost:80", "127.8.8.8:1", "[::1]:0", "unix:/x"])
def test_loopback_needs_none(tmp_path: Path, bind: str) -> None:
    load(write(tmp_path, f'{SMALL}[fronts.http]\nbind = "{bind}"\n'))


def test_a_unix_socket_is_relative_to_the_folder_of_the_config(tmp_path: Path) -> None:
    loaded = load(write(tmp_path, SMALL + '[fronts.http]\nbind = "unix:run/clutch.sock"\n'))
    assert loaded.fronts["http"]["bind"] == [f"unix:{tmp_path.resolve()}/run/clutch.sock"]


def test_the_calls_front_takes_what_the_front_of_apps_takes(tmp_path: Path) -> None:
    options = 'bind = ["fd:3", "0.0.0.0:8443"]\ntls = { certificate = "c.pem", key = "k.pem", client_ca = "ca.pem" }\n'
    (tmp_path / "tokens").write_text("secret\n")
    loaded = load(write(tmp_path, f'{SMALL}[fronts.http]\n{options}token_file = "tokens"\n'))
    http, folder = loaded.fronts["http"], tmp_path.resolve()
    assert (http["bind"], http["token_file"]) == (["fd:3", "0.0.0.0:8443"], f"{folder}/tokens")
    assert http["connection"]["tls"] == {
        "certificate": f"{folder}/c.pem",
        "key": f"{folder}/k.pem",
        "client_ca": f"{folder}/ca.pem",
        "client_auth": "required",
    }


def test_origins_are_as_browsers_write_them(tmp_path: Path) -> None:
    given = '["https://App.Example:443", "http://localhost:3000", "http://[::1]:80", "tauri://localhost"]'
    loaded = load(write(tmp_path, f"{SMALL}[fronts.http]\ncors_origins = {given}\n"))
    assert loaded.fronts["http"]["cors_origins"] == [
        "https://app.example",
        "http://localhost:3000",
        "http://[::1]",
        "tauri://localhost",
    ]
    assert load(write(tmp_path, f"{SMALL}[fronts.http]\n")).fronts["http"]["cors_origins"] == []


@pytest.mark.parametrize(
    ("line", "place", "words"),
    [
        ('cors_origins = ["https://app.example/"]', "cors_origins", "invalid value"),
        ('cors_origins = ["app.example"]', "cors_origins", "invalid value"),
        ('cors_origins = ["null"]', "cors_origins", "invalid value"),
        ('cors_origins = ["https://app.example:70000"]', "cors_origins", "invalid value"),
        ('cors_origins = "*"', "cors_origins", "'*' needs a token"),
        ('pools = ["apy"]', "pools", "no such pool"),
        ("pools = []", "pools", "invalid value"),
        ('pools = ["api", "api"]', "pools", "invalid value"),
        ('pass_headers = ["x user"]', "pass_headers", "invalid value"),
        ('pass_headers = ["Clutch-Caller"]', "pass_headers", "invalid value"),
        (f"pass_headers = {[f'x-{nr}' for nr in range(21)]}", "pass_headers", "invalid value"),
        ('pass_headers = ["Authorization"]\ntoken = "a"', "pass_headers", "clutch-caller"),
        ('cors_origins = "*"\ninsecure = true', "cors_origins", "'*' needs a token"),
        ('token_file = "missing"', "token_file", "cannot be read: No such file or directory"),
        ('token_file = "pipe"', "token_file", "cannot be read: it is not a regular file"),
        ('token = "a"\ntoken_file = "clutch.toml"', "token_file", "token is also given"),
        ('tls.key = "k.pem"', "tls.certificate", "is missing: tls.key is given"),
        ("bind = []", "bind", "invalid value"),
        ('bind = ["127.0.0.1:80", "0.0.0.0:80"]', "bind", "needs a token or TLS"),
    ],
)
def test_what_is_wrong_with_the_calls_front(tmp_path: Path, line: str, place: str, words: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    found = problems_of(write(tmp_path, f"{SMALL}[fronts.http]\n{line}\n"))
    assert list(found) == [f"fronts.http.{place}"]
    assert words in found[f"fronts.http.{place}"].what


def test_any_origin_may_call_where_a_token_is_asked_for(tmp_path: Path) -> None:
    loaded = load(write(tmp_path, f'{SMALL}[fronts.http]\ncors_origins = "*"\ntoken = "secret"\n'))
    assert loaded.fronts["http"]["cors_origins"] == ["*"]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert "cannot be read" in str(*problems_of(tmp_path / "none.toml").values())
    assert "is not TOML" in str(*problems_of(write(tmp_path, "a = = b")).values())
    assert "has no [tool.clutch]" in str(*problems_of(write(tmp_path, "", "pyproject.toml")).values())
    with pytest.raises(ConfigError, match="clutch init"):
        config.find(Path("/proc/self"))


# Fronts that run an app

WEB = '[fronts.serve]\napp = "shop.web:app"\n'
TCP = '[fronts.tcp]\nhandler = "shop.echo:handle"\n'


def test_an_app_needs_no_pool_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "usable_cpus", lambda: 8)
    loaded = load(write(tmp_path, WEB + TCP))
    web, tcp = loaded.pools
    assert (web.name, web.values["target"], web.core["launch"]["target"]) == ("web", "shop.web:app", "shop.web:app")
    assert web.core["shape"] == {"profile": "async", "workers": 8, "threads": 1, "tasks": 256}
    assert web.core["launch"]["app"] == {"kind": "auto", "factory": False, "root_path": "", "lifespan": "auto"}
    assert web.core["launch"]["profile_given"] is False
    assert web.core["queue_limit"] == 1000
    assert (tcp.name, tcp.core["launch"]["app"]) == ("tcp", {"kind": "tcp", "factory": False})
    assert loaded.fronts["serve"] == {
        "kind": "serve",
        "pool": "web",
        "bind": ["127.0.0.1:8000"],
        "connection": {
            "connections_max": 10_000,
            "head_bytes_max": 64 << 10,
            "head_timeout_ms": 10_000,
            "body_timeout_ms": 30_000,
            "write_timeout_ms": 30_000,
            "keep_alive_ms": 75_000,
            "access_log": None,
            "access_log_format": None,
            "access_log_skip": [],
            "tls": None,
        },
        "unix_mode": 0o666,
        "threads": 2,
        "dispatch": "auto",
        "timeout_ms": "auto",
        "silence_ms": None,
        "disconnect": "tell",
        "root_path": "",
        "headers_max": 100,
        "body_bytes_max": None,
        "connection_requests_max": None,
        "streams_max": 100,
        "message_bytes_max": 16 << 20,
        "ping_interval_ms": 20_000,
        "ping_timeout_ms": 20_000,
        "proxy_protocol": False,
        "forwarded_allow": ["127.0.0.1", "::1"],
        "header_map": "drop",
        "forwarder_headers": [],
    }
    assert loaded.fronts["tcp"] == {"kind": "tcp", "pool": "tcp", "bind": ["127.0.0.1:9000"], "connections_max": 10_000}


def test_fronts_of_one_kind_have_names_and_pools_of_their_own(tmp_path: Path) -> None:
    shop = '[fronts.shop]\nkind = "serve"\napp = "shop.web:app"\n'
    text = shop + '[fronts.blog]\nkind = "serve"\napp = "blog:app"\nbind = "h:1"\n'
    environ = {"CLUTCH_FRONTS_BLOG_TIMEOUT": "5s", "CLUTCH_POOLS_SHOP_WORKERS": "3"}
    loaded = load(write(tmp_path, text), environ=environ, settings=["fronts.shop.bind=h:2", "pools.blog.threads=2"])
    assert {name: (front["kind"], front["pool"]) for name, front in loaded.fronts.items()} == {
        "shop": ("serve", "shop"),
        "blog": ("serve", "blog"),
    }
    assert (loaded.fronts["blog"]["timeout_ms"], loaded.fronts["shop"]["bind"]) == (5000, ["h:2"])
    shapes = {pool.name: pool.core["shape"] for pool in loaded.pools}
    assert (shapes["shop"]["workers"], shapes["blog"]["threads"]) == (3, 2)


def test_a_pool_of_tools_runs_no_app(tmp_path: Path) -> None:
    launch = load(write(tmp_path, SMALL)).pools[0].core["launch"]
    assert (launch["app"], launch["profile_given"]) == (None, False)


def test_an_app_in_a_pool_that_is_described(tmp_path: Path) -> None:
    text = SMALL + WEB + 'pool = "own"\nfactory = true\n[pools.own]\nprofile = "thread"\nthreads = 3\n[fronts.http]\n'
    pools = {pool.name: pool for pool in load(write(tmp_path, text)).pools}
    api, own = pools["api"], pools["own"]
    assert (own.values["target"], own.core["shape"]["profile"], own.slots) == (
        "shop.web:app",
        "thread",
        3 * own.core["shape"]["workers"],
    )
    assert own.core["launch"]["app"] == {"kind": "auto", "factory": True, "root_path": "", "lifespan": "auto"}
    assert (own.core["launch"]["profile_given"], own.core["launch"]["validate"]) == (True, False)
    assert (api.core["launch"]["app"], api.core["launch"]["validate"]) == (None, True)


def test_variables_and_settings_reach_the_pool_of_an_app(tmp_path: Path) -> None:
    environ = {"CLUTCH_POOLS_WEB_WORKERS": "3", "CLUTCH_FRONTS_SERVE_BIND": '["[::1]:1", "fd:3"]'}
    settings = ["pools.web.threads=2", "fronts.serve.timeout=none", "fronts.serve.tls.key=k", "fronts.serve.bind=h:1"]
    loaded = load(write(tmp_path, WEB + 'tls.certificate = "c"\n'), environ=environ, settings=settings)
    assert (loaded.pools[0].core["shape"]["workers"], loaded.pools[0].core["shape"]["threads"]) == (3, 2)
    assert (loaded.fronts["serve"]["bind"], loaded.fronts["serve"]["timeout_ms"]) == (["h:1"], None)
    loaded = load(write(tmp_path, WEB), environ=environ)
    assert loaded.fronts["serve"]["bind"] == ["[::1]:1", "fd:3"]


def test_paths_of_a_front_are_relative_to_the_folder_of_the_config(tmp_path: Path) -> None:
    text = (
        WEB + 'tls = { certificate = "c.pem", key = "/k.pem" }\naccess_log = "log/a"\nbind = ["unix:s", "0.0.0.0:80"]\n'
    )
    serve = load(write(tmp_path, text)).fronts["serve"]
    here = tmp_path.resolve()
    assert serve["connection"]["tls"] == {
        "certificate": f"{here}/c.pem",
        "key": "/k.pem",
        "client_ca": None,
        "client_auth": "none",
    }
    assert (serve["connection"]["access_log"], serve["bind"]) == (f"{here}/log/a", [f"unix:{here}/s", "0.0.0.0:80"])
    assert load(write(tmp_path, WEB + 'access_log = "-"\n')).fronts["serve"]["connection"]["access_log"] == "-"


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        ("[fronts.serve]\n", "fronts.serve.app", "is missing"),
        ("[fronts.tcp]\n", "fronts.tcp.handler", "is missing"),
        (WEB + 'pool = "a b"\n', "fronts.serve.pool", "invalid value"),
        (WEB + '[pools.web]\ntarget = "shop.tools"\n', "pools.web.target", "runs shop.web:app"),
        (WEB + 'pool = "one"\n' + TCP + 'pool = "one"\n', "fronts.tcp.pool", "the app of fronts.serve"),
        (WEB + TCP + 'bind = "127.0.0.1:8000"\n', "fronts.tcp.bind", "fronts.serve listens"),
        (WEB + 'bind = ["unix:a", "unix:a"]\n', "fronts.serve.bind", "fronts.serve listens"),
        (WEB + "bind = []\n", "fronts.serve.bind", "invalid value"),
        (WEB + 'bind = "fd:x"\n', "fronts.serve.bind", "invalid value"),
        (WEB + 'access_log_format = "%(x)s"\n', "fronts.serve.access_log_format", "no such atom: %(x)s"),
        (WEB + 'tls.client_ca = "c"\n', "fronts.serve.tls.certificate", "tls.client_ca is given"),
        (
            WEB + 'tls = { certificate = "c", key = "k", client_auth = "optional" }\n',
            "fronts.serve.tls.client_ca",
            "tls.client_auth is given",
        ),
        (WEB + 'tls.certificate = "a"\n', "fronts.serve.tls.key", "tls.certificate is given"),
        (WEB + 'tls.key = "a"\n', "fronts.serve.tls.certificate", "tls.key is given"),
        (WEB + 'root_path = "shop/"\n', "fronts.serve.root_path", "invalid value"),
        (WEB + 'forwarded_allow = ["10.0.0.0/40"]\n', "fronts.serve.forwarded_allow", "invalid value"),
        (WEB + "forwarded_allow = [3]\n", "fronts.serve.forwarded_allow", "invalid value"),
        (WEB + "timeout = 0\n", "fronts.serve.timeout", "invalid value"),
        (WEB + "keepalive = 1\n", "fronts.serve.keepalive", "no such option"),
    ],
)
def test_refused_of_an_app(tmp_path: Path, text: str, place: str, what: str) -> None:
    assert what in problems_of(write(tmp_path, text))[place].what


# Pools made in Python


def test_a_pool_made_in_python_has_no_queue_limit() -> None:
    pool = config.resolve(target="shop", workers=3, deadline=2.0, recycle={"calls": 5}, queue=None)
    assert (pool.core["queue_limit"], pool.core["deadline_ms"], pool.core["recycle_calls"]) == (None, 2000, 5)
    assert pool.core["launch"]["target"] == "shop"
    assert (pool.core["launch"]["sys_path"], pool.folder) == ([], None)
    assert config.resolve(queue={"limit": 5}).core["queue_limit"] == 5


def test_keywords_are_checked_by_the_same_table() -> None:
    with pytest.raises(ConfigError) as caught:
        config.resolve("a b", profile="thred", worker=3)
    assert {problem.place for problem in caught.value.problems} == {"Pool.name", "Pool.profile", "Pool.worker"}


def test_python_may_be_a_path_object() -> None:
    assert config.resolve(python=Path(sys.executable)).interpreter == interpreter.current()


# What is decided


@pytest.mark.parametrize(
    ("profile", "free_threaded", "expected"),
    [
        ("process", False, (6, 1, 1)),
        ("thread", False, (6, 8, 1)),
        ("thread", True, (1, 8, 1)),
        ("async", False, (6, 1, 256)),
        ("greenlet", False, (6, 1, 256)),
    ],
)
def test_shape_by_profile(profile: str, free_threaded: bool, expected: tuple[int, int, int]) -> None:
    python = FREE_THREADED if free_threaded else Interpreter("/x", "cpython", (3, 11, 0), False, "/x")
    shape = pools.shape_defaults(profile, python, cpus=6)
    assert (shape["workers"].max, shape["threads"], shape["tasks"]) == expected


def test_workers_by_default_fit_into_the_memory_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "usable_cpus", lambda: 16)
    monkeypatch.setattr(limits, "memory_limit", lambda *_: 512 << 20)
    pool = config.resolve()
    assert pool.core["shape"]["workers"] == 4
    assert "16 usable CPUs, and a memory limit of 512 MB: 4 workers by default" in pool.warnings[0]
    assert config.resolve(workers=16).warnings == ()
    monkeypatch.setattr(limits, "memory_limit", lambda *_: None)
    assert (config.resolve().core["shape"]["workers"], config.resolve().warnings) == (16, ())


def test_no_greenlets_on_a_free_threaded_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "resolve", lambda python, folder: FREE_THREADED)
    with pytest.raises(ConfigError, match="gevent"):
        config.resolve(profile="greenlet")


@pytest.mark.parametrize(("workers", "expected"), [(1, "8"), (3, "2"), (8, "1"), (100, "1")])
def test_blas_threads_share_the_cpus(monkeypatch: pytest.MonkeyPatch, workers: int, expected: str) -> None:
    for count in ("usable_cpus", "whole_cpus"):
        monkeypatch.setattr(limits, count, lambda: 8)
    for name in pools.BLAS_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    pool = config.resolve(workers=workers)
    assert pool.core["env"] == dict.fromkeys([*pools.BLAS_VARIABLES, pools.BLAS_SET_BY_CLUTCH], expected)
    assert pool.warnings == ()


def test_a_pool_in_a_worker_counts_its_blas_threads_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    for count in ("usable_cpus", "whole_cpus"):
        monkeypatch.setattr(limits, count, lambda: 4)
    for name, text in config.resolve(workers=1, env={"OMP_NUM_THREADS": "3"}).core["env"].items():
        monkeypatch.setenv(name, text)
    inner = config.resolve(workers=2)
    assert inner.core["env"]["NUMEXPR_NUM_THREADS"] == "2" and "OMP_NUM_THREADS" not in inner.core["env"]
    assert ["OMP_NUM_THREADS=3" in warning for warning in inner.warnings] == [True]


def test_blas_threads_set_by_the_user_are_kept_and_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "usable_cpus", lambda: 4)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    pool = config.resolve(workers=4, env={"OPENBLAS_NUM_THREADS": "4"})
    assert pool.core["env"]["OPENBLAS_NUM_THREADS"] == "4"
    assert "OMP_NUM_THREADS" not in pool.core["env"], "the process has it already"
    assert ["OPENBLAS_NUM_THREADS=4" in warning for warning in pool.warnings] == [True]


# CPUs by cgroup


def fake_cgroups(root: Path, own: str, mount: str, files: dict[str, str]) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(own)
    (root / "proc/self/mountinfo").write_text(mount)
    for name, text in files.items():
        file = root / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


V2 = "30 25 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
V1 = "31 25 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"


def test_quota_of_cgroup_v2_is_the_tightest_above(tmp_path: Path) -> None:
    files = {"a/b/cpu.max": "max 100000", "a/cpu.max": "150000 100000", "a/memory.max": "1048576"}
    root = fake_cgroups(tmp_path, "0::/a/b\n", V2, files)
    assert limits.cpu_quota(root) == 1.5
    assert limits.usable_cpus(root) == min(2, len(os.sched_getaffinity(0)))
    assert limits.whole_cpus(root) == 1
    assert limits.memory_limit(root) == 1 << 20


def test_quota_of_cgroup_v1_in_a_container(tmp_path: Path) -> None:
    files = {"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}
    root = fake_cgroups(tmp_path, "3:cpu,cpuacct:/docker/abc\n", V1, files)
    assert limits.cpu_quota(root) == 0.5
    assert limits.usable_cpus(root) == limits.whole_cpus(root) == 1


def test_no_quota(tmp_path: Path) -> None:
    files = {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}
    assert limits.cpu_quota(fake_cgroups(tmp_path, "3:cpu:/\n", V1, files)) is None
    assert limits.cpu_quota(tmp_path / "nothing") is None


# What is generated


def test_reference_page_is_up_to_date() -> None:
    assert (ROOT / "docs/config.md").read_text() == pages.reference(), "run `make docs`"


def test_the_example_is_a_config_and_its_comments_are_the_defaults(tmp_path: Path) -> None:
    text = pages.example()
    plain = load(write(tmp_path, text))
    uncommented = re.sub(r"(?m)^#(\w[\w.]* = )(?!=)", r"\1", re.sub(r"(?m)^#\w[\w.]* =    #.*$", "", text))
    assert load(write(tmp_path, uncommented)).pools[0].core == plain.pools[0].core


def rust_fields(name: str) -> set[str]:
    text = "".join((ROOT / f"crates/clutch-{crate}/src/config.rs").read_text() for crate in ("pool", "fronts"))
    body = re.search(rf"pub struct {name} \{{(.*?)\n\}}", text, re.DOTALL)
    assert body is not None
    return set(re.findall(r"(?m)^\s*pub (\w+):", body[1]))


def test_the_core_gets_exactly_the_fields_of_its_structs(tmp_path: Path) -> None:
    loaded = load(write(tmp_path, SMALL + "[fronts.http]\n[fronts.admin]\n"))
    pool = json.loads(loaded.pools[0].core_json())
    assert set(pool) == rust_fields("PoolConfig")
    assert set(pool["shape"]) == rust_fields("Shape")
    assert set(loaded.fronts["http"]) - {"kind"} == rust_fields("HttpConfig")
    assert set(loaded.fronts["http"]["connection"]) == rust_fields("ConnectionConfig")
    assert set(loaded.fronts["admin"]) - {"kind"} == rust_fields("AdminConfig")


def test_the_core_gets_exactly_the_fields_of_the_fronts_with_an_app(tmp_path: Path) -> None:
    loaded = load(write(tmp_path, WEB + 'tls = { certificate = "a.pem", key = "/b.pem" }\n' + TCP))
    assert set(loaded.fronts["serve"]) - {"kind"} == rust_fields("ServeConfig")
    assert set(loaded.fronts["serve"]["connection"]) == rust_fields("ConnectionConfig")
    assert set(loaded.fronts["serve"]["connection"]["tls"]) == rust_fields("TlsConfig")
    assert set(loaded.fronts["tcp"]) - {"kind"} == rust_fields("TcpConfig")


def test_stores_are_read_where_the_rest_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUTCH_STORES_MAIN_URL", "redis://localhost")
    monkeypatch.setenv("CLUTCH_POOLS_API_WORKERS", "4")
    path = write(
        tmp_path, '[stores.main]\nurl = "sqlite:///a.db"\n[stores.other]\nurl = "sqlite:///b.db"\n[pools]\nx = 1'
    )
    assert config.load_stores(path) == {"main": "redis://localhost", "other": f"sqlite:///{tmp_path.resolve()}/b.db"}
    with pytest.raises(ConfigError, match=r"stores\.main\.uri"):
        monkeypatch.delenv("CLUTCH_STORES_MAIN_URL")
        config.load_stores(write(tmp_path, '[stores.main]\nuri = "sqlite:///a.db"\n'))
