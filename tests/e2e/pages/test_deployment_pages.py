"""The README's server, and docs/docker.md, docs/kubernetes.md and docs/tracing.md, run as a reader would run them.

There is no container here: what an image or a manifest starts is started by hand, with its variables and arguments.
"""

from __future__ import annotations

import contextlib
import gzip
import http.server
import json
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from support.clutch_process import COMMAND, WAIT_SECONDS, Answer, Dispatcher, answer, environment
from support.clutch_process import Server as Run
from support.pages import BIN, ROOT, blocks, write_files
from support.serve_process import ANY_PORT, Serving, curl

yaml = pytest.importorskip("yaml")

README = ROOT / "README.md"
DOCKER = ROOT / "docs/docker.md"
KUBERNETES = ROOT / "docs/kubernetes.md"
TRACING = ROOT / "docs/tracing.md"
APP = """
from fastapi import FastAPI

app = FastAPI()


@app.get("/")
async def hello() -> dict[str, str]:
    return {"hello": "world"}
"""


class Container(Serving):
    """What a container starts, on ports of its own."""

    def __init__(self, folder: Path, command: list[str], variables: dict[str, str]) -> None:
        (folder / "main.py").write_text(APP)
        ports = {"PORT": "0", "CLUTCH_FRONTS_ADMIN_BIND": variables["CLUTCH_FRONTS_ADMIN_BIND"].split(":")[0] + ":0"}
        assert ports.keys() <= variables.keys()
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        super().__init__(folder, command=command, env=environment() | variables | ports | {"PATH": path})

    @property
    def admin(self) -> str:
        return self.err.wait(r"admin: http://([\d.:]+)")[1]

    def probe(self, path: str, host: str | None = None) -> Answer:
        connection = http.client.HTTPConnection(self.admin, timeout=WAIT_SECONDS)
        with contextlib.closing(connection):
            connection.request("GET", path, headers={"Host": host} if host else {})
            return answer(connection)


def test_the_readme_s_tool_over_http(tmp_path: Path) -> None:
    """`clutch run`, then both commands of the page and the page's own result."""
    write_files(README, tmp_path)
    config = (tmp_path / "clutch.toml").read_text().replace("127.0.0.1:8080", ANY_PORT)
    (shown,) = (text for text in blocks(README, "sh") if text.startswith("clutch run\n"))
    _, asking, calling = shown.splitlines()
    with Run(tmp_path, config) as server:
        server.wait_ready("shop")
        words = shlex.split(asking, comments=True)
        assert words[0] == "curl"
        printed = curl(*(word.replace("127.0.0.1:8080", server.http) for word in words[1:])).stdout.decode()
        assert f"prints `{printed.strip()}`" in README.read_text()
        words = shlex.split(calling, comments=True)[1:]
        done = subprocess.run([*COMMAND, *words], cwd=tmp_path, env=environment(), capture_output=True, text=True)
        assert (done.returncode, json.loads(done.stdout)) == (0, json.loads(printed)["result"])


# Docker


def dockerfile() -> dict[str, list[str]]:
    """The arguments of each instruction, continued lines joined."""
    found: dict[str, list[str]] = {}
    for line in blocks(DOCKER, "dockerfile")[0].replace("\\\n", " ").splitlines():
        name, _, rest = line.partition(" ")
        if name:
            found.setdefault(name, []).append(rest)
    return found


def variables_of_image() -> dict[str, str]:
    return dict(word.split("=", 1) for word in shlex.split(dockerfile()["ENV"][0]))


@pytest.fixture
def image(tmp_path: Path) -> Iterator[Container]:
    (command,) = dockerfile()["CMD"]
    with Container(tmp_path, json.loads(command), variables_of_image()) as container:
        container.wait_ready("web")
        yield container


def test_the_dockerfile_has_only_instructions_that_there_are() -> None:
    assert dockerfile().keys() <= {"FROM", "RUN", "WORKDIR", "COPY", "USER", "ENV", "EXPOSE", "HEALTHCHECK", "CMD"}
    assert dockerfile()["EXPOSE"] == [variables_of_image()["PORT"]]


def test_the_image_serves_beyond_loopback_and_ends_in_order(image: Container) -> None:
    assert image.address.startswith("0.0.0.0:")
    assert image.get("/").json == {"hello": "world"}
    assert image.out.wait(r'"GET / HTTP/1.1" 200')
    image.terminate()
    assert image.wait() == 0


def test_the_health_check_sees_whether_the_pool_is_ready(image: Container) -> None:
    words = json.loads(dockerfile()["HEALTHCHECK"][0].removeprefix("CMD "))
    check = [sys.executable, *(word.replace("127.0.0.1:9180", image.admin) for word in words[1:])]
    assert subprocess.run(check, capture_output=True, timeout=WAIT_SECONDS).returncode == 0
    subprocess.run(
        [*COMMAND, "drain", "--pid", str(image.process.pid)], env=environment(), check=True, timeout=WAIT_SECONDS
    )
    assert subprocess.run(check, capture_output=True, timeout=WAIT_SECONDS).returncode != 0


# Kubernetes


def manifests() -> dict[str, Any]:
    return {one["kind"]: one for one in yaml.safe_load_all(blocks(KUBERNETES, "yaml")[0])}


def pod() -> dict[str, Any]:
    return manifests()["Deployment"]["spec"]["template"]


def container_of_pod() -> dict[str, Any]:
    (container,) = pod()["spec"]["containers"]
    return container


def variables_of_pod() -> dict[str, str]:
    return {one["name"]: one["value"] for one in container_of_pod()["env"]}


def test_names_and_ports_of_the_manifests_fit_together() -> None:
    ports = {one["name"]: str(one["containerPort"]) for one in container_of_pod()["ports"]}
    variables, annotations = variables_of_pod(), pod()["metadata"]["annotations"]
    assert ports["http"] == variables["PORT"]
    assert ports["admin"] == variables["CLUTCH_FRONTS_ADMIN_BIND"].split(":")[1] == annotations["prometheus.io/port"]
    labels = pod()["metadata"]["labels"]
    assert manifests()["Service"]["spec"]["selector"] == labels
    assert manifests()["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert {one["targetPort"] for one in manifests()["Service"]["spec"]["ports"]} <= ports.keys()


def test_the_pod_has_time_for_its_grace() -> None:
    arguments = container_of_pod()["args"]
    grace = int(arguments[arguments.index("--graceful-timeout") + 1])
    waiting = int(container_of_pod()["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod()["spec"]["terminationGracePeriodSeconds"] >= waiting + grace + 5


def test_the_pod_is_probed_and_scraped(tmp_path: Path) -> None:
    container = container_of_pod()
    with Container(tmp_path, container["args"], variables_of_pod()) as started:
        started.err.wait('"pool": "web", "ready": true')
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            asked = container[probe]["httpGet"]
            assert (asked["port"], started.probe(asked["path"], "10.1.2.3:9180").status) == ("admin", 200)
        scraped = started.probe(pod()["metadata"]["annotations"]["prometheus.io/path"], "10.1.2.3:9180")
        workers = int(variables_of_pod()["WEB_CONCURRENCY"])
        assert f'clutch_pool_workers_target{{pool="web"}} {workers}' in scraped.body.decode()
        assert started.probe("/readyz", "shop.default.svc:9180").status == 421


# Sentry and OpenTelemetry


@contextlib.contextmanager
def collector() -> Iterator[tuple[str, Queue[str]]]:
    """A server that takes what Sentry's client sends: its DSN, and the bodies."""
    seen: Queue[str] = Queue()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            is_packed = self.headers["Content-Encoding"] == "gzip"
            seen.put((gzip.decompress(body) if is_packed else body).decode())
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://key@127.0.0.1:{server.server_port}/1", seen
        finally:
            server.shutdown()
            thread.join(WAIT_SECONDS)


def ended(dispatcher: Dispatcher) -> None:
    dispatcher.terminate()
    assert dispatcher.wait() == 0


def test_sentry_hears_of_an_app_s_exception(tmp_path: Path) -> None:
    pytest.importorskip("sentry_sdk")
    write_files(TRACING, tmp_path)
    with collector() as (dsn, seen):
        environ = environment() | {"SENTRY_DSN": dsn}
        with Serving(tmp_path, "app:app", "-w", "1", "-b", ANY_PORT, env=environ) as serving:
            serving.wait_ready("web")
            assert serving.get("/fail").status == 500
            ended(serving)
        sent = seen.get(timeout=WAIT_SECONDS)
        assert "to be reported" in sent
        assert '"transaction":"/fail"' in sent


def test_sentry_hears_of_a_tool_s_exception_before_its_worker_ends(tmp_path: Path) -> None:
    pytest.importorskip("sentry_sdk")
    write_files(TRACING, tmp_path)
    program = "from clutch import Pool\nwith Pool('reported', workers=1) as pool: pool.call('ratio', a=1, b=0)"
    with collector() as (dsn, seen):
        environ = environment() | {"SENTRY_DSN": dsn}
        command = [sys.executable, "-c", program]
        done = subprocess.run(
            command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=WAIT_SECONDS * 2
        )
        assert re.search(r"ZeroDivisionError: .*division by zero", done.stderr)
        assert "division by zero" in seen.get(timeout=WAIT_SECONDS)


def test_a_span_of_a_tool_belongs_to_the_caller_s_trace(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.sdk")
    write_files(TRACING, tmp_path)
    config = f'[pools.api]\ntarget = "traced"\nworkers = 1\n[fronts.http]\nbind = "{ANY_PORT}"\n'
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    with Run(tmp_path, config) as server:
        server.wait_ready("api")
        assert server.call("total", {"prices": [1, 2]}, traceparent=f"00-{trace}-{parent}-01").result == 3
        ended(server)
        printed = server.out.text
    assert f'"trace_id": "0x{trace}"' in printed
    assert f'"parent_id": "0x{parent}"' in printed
