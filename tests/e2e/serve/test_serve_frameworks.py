"""FastAPI, Starlette, Flask and Django under `clutch serve`, asked by curl, httpx and a WebSocket client.

The examples are served by the commands of their docstrings, and under the other profiles.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import framework_app
import httpx
import pytest
from websockets.sync.client import connect

from support.clutch_process import WAIT_SECONDS, answer, environment
from support.rendezvous import Rendezvous
from support.serve_process import ANY_PORT, EXAMPLES, Serving, curl

BODY = bytes(range(256)) * 12_000
"""3 MB: more than fits on the way."""
DIGEST = {"bytes": len(BODY), "sha256": hashlib.sha256(BODY).hexdigest()}
MORE_THAN_ANYIOS_DEFAULT = 64
MANY = f"--worker-connections {MORE_THAN_ANYIOS_DEFAULT}"


def commands() -> list[str]:
    """From the examples' docstrings: what follows `clutch serve`."""
    files = [*EXAMPLES.glob("serve_*.py"), EXAMPLES / "serve_django" / "__init__.py"]
    return [found for file in files for found in re.findall(r": cd examples && clutch serve (.+)", file.read_text())]


MORE_COMMANDS = [
    "serve_fastapi:app -k sync",
    "serve_fastapi:app -k gthread --threads 3",
    "serve_fastapi:app -k gevent",
    "serve_flask:app --threads 3",
    "serve_flask:app -k gevent",
]
DJANGO_WSGI = "serve_django.wsgi"

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is missing: apt-get install curl")


def skip_without_gevent(command: str) -> None:
    if "gevent" in command:
        pytest.importorskip("gevent")


def test_each_example_says_how_it_is_run() -> None:
    served = {command.split()[0].partition(":")[0] for command in commands()}
    assert served == {"serve_fastapi", "serve_flask", "serve_django.asgi", DJANGO_WSGI}


@pytest.mark.parametrize("page", ["README.md", "docs/serve/quickstart.md"])
def test_the_first_five_minutes(tmp_path: Path, page: str) -> None:
    """A page's first app, its first command, and what its curl prints."""
    text = (EXAMPLES.parent / page).read_text()
    (code,) = re.findall(r"(?ms)^```python\n# web\.py\n(.*?)^```", text)
    command = re.search(r"(?m)^clutch serve (\S+)", text)
    asked = re.search(r"(?m)^curl http://127\.0\.0\.1:8000(\S+) .*prints (.+)$", text)
    assert command is not None and asked is not None
    (tmp_path / "web.py").write_text(code)
    with Serving(tmp_path, command[1], "-b", ANY_PORT) as serving:
        serving.wait_ready("web")
        assert curl(serving.url + asked[1]).stdout.decode() == asked[2]


# The examples, each under its profiles


@pytest.fixture(scope="module", params=[*commands(), *MORE_COMMANDS])
def example(request: pytest.FixtureRequest) -> Iterator[Serving]:
    skip_without_gevent(request.param)
    with Serving(EXAMPLES, *request.param.split(), "-w", "1", "-b", ANY_PORT) as serving:
        serving.wait_ready("web")
        yield serving


@pytest.fixture
def body(tmp_path: Path) -> Path:
    (tmp_path / "body").write_bytes(BODY)
    return tmp_path / "body"


HTTP_VERSIONS = [("--http1.1", "1.1"), ("--http2-prior-knowledge", "2")]


@pytest.mark.parametrize(("flag", "version"), HTTP_VERSIONS)
def test_curl_gets(example: Serving, flag: str, version: str) -> None:
    written = curl(flag, "-w", "\n%{http_code} %{http_version}", f"{example.url}/split/90/4").stdout
    found, _, last = written.decode().rpartition("\n")
    assert (json.loads(found), last) == ({"each": 22.5}, f"200 {version}")
    assert curl(flag, "-o", "-", "-w", "%{http_code}", f"{example.url}/nowhere").stdout.endswith(b"404")


@pytest.mark.parametrize(
    ("flag", "first_line"), [("--http1.1", "HTTP/1.1 100"), ("--http2-prior-knowledge", "HTTP/2 200")]
)
def test_curl_uploads(example: Serving, body: Path, flag: str, first_line: str) -> None:
    """Over HTTP/1.1 it waits to be told to go on; over HTTP/2 it does not, whatever it expects."""
    upload = ("-v", flag, "-H", "Expect: 100-continue", "--data-binary", f"@{body}")
    done = curl(*upload, f"{example.url}/digest")
    assert json.loads(done.stdout) == DIGEST
    assert re.findall(r"< (HTTP/\S+ \d+)", done.stderr.decode())[0] == first_line


@pytest.mark.parametrize(("flag", "version"), HTTP_VERSIONS)
def test_curl_reads_a_stream(example: Serving, flag: str, version: str) -> None:
    lines = curl(flag, "-N", f"{example.url}/countdown/1000").stdout.split()
    assert lines == [b"%d" % left for left in range(1000, 0, -1)]


@pytest.mark.parametrize("is_http2", [False, True], ids=["http1", "http2"])
def test_httpx(example: Serving, is_http2: bool) -> None:
    with httpx.Client(base_url=example.url, http1=not is_http2, http2=is_http2, timeout=WAIT_SECONDS) as client:
        first = client.get("/split/90/4")
        assert (first.json(), first.http_version) == ({"each": 22.5}, "HTTP/2" if is_http2 else "HTTP/1.1")
        assert client.post("/digest", content=BODY).json() == DIGEST
        with client.stream("GET", "/countdown/1000") as streamed:
            assert list(streamed.iter_lines()) == [str(left) for left in range(1000, 0, -1)]


def test_a_body_without_a_length(example: Serving) -> None:
    def pieces() -> Iterator[bytes]:
        yield from (BODY[at : at + 100_000] for at in range(0, len(BODY), 100_000))

    if DJANGO_WSGI in example.process.args:
        pytest.skip("under WSGI Django reads as much as Content-Length says, and else nothing")
    assert httpx.post(f"{example.url}/digest", content=pieces(), timeout=WAIT_SECONDS).json() == DIGEST


def test_an_exception_is_an_error_page_and_is_told(example: Serving) -> None:
    pids = example.workers()
    assert curl("-o", "-", "-w", "%{http_code}", f"{example.url}/split/1/0").stdout.endswith(b"500")
    example.err.wait("ZeroDivisionError: division by zero")
    assert (example.get("/split/1/1").status, example.workers()) == (200, pids)


# What only FastAPI has


@pytest.fixture(scope="module", params=["", "-k sync", "-k gthread --threads 3", "-k gevent"])
def fastapi(request: pytest.FixtureRequest) -> Iterator[Serving]:
    skip_without_gevent(request.param)
    with Serving(EXAMPLES, "serve_fastapi:app", "-w", "1", "-b", ANY_PORT, *request.param.split()) as serving:
        serving.wait_ready("web")
        yield serving


def test_the_state_of_the_lifespan(fastapi: Serving) -> None:
    assert (fastapi.get("/stock/tea").json, fastapi.get("/stock/milk").status) == (3, 404)


def test_a_websocket_by_a_real_client(fastapi: Serving) -> None:
    with connect(f"ws://{fastapi.address}/echo", open_timeout=WAIT_SECONDS) as client:
        for text in ("hello", "é" * 1000, ""):
            client.send(text)
            assert client.recv(WAIT_SECONDS) == f"You said: {text}"


def test_events_come_as_they_happen(fastapi: Serving) -> None:
    """There is no end to wait for."""
    command = ["curl", "-sSN", "--max-time", str(WAIT_SECONDS), f"{fastapi.url}/events"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        events = (line for line in client.stdout if line.startswith("data:"))
        assert [next(events), next(events)] == ['data: {"tick":0}\n', 'data: {"tick":1}\n']
        client.kill()


def test_the_pages_that_fastapi_makes(fastapi: Serving) -> None:
    assert (fastapi.get("/docs").status, "/echo" in fastapi.get("/").body.decode()) == (200, True)
    assert set(fastapi.get("/openapi.json").json["paths"]) > {"/split/{total}/{people}", "/events"}


# What frameworks offer


def serve_app(folder: Path, flags: str, **variables: str) -> Serving:
    skip_without_gevent(flags)
    env = environment() | variables
    return Serving(folder, "framework_app:app", "-w", "1", "-b", ANY_PORT, *flags.split(), env=env)


@pytest.fixture(scope="module", params=["", "-k sync", "-k gthread --threads 3"])
def app(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serve_app(tmp_path_factory.mktemp("app"), request.param) as serving:
        serving.wait_ready("web")
        yield serving


@pytest.mark.parametrize(("path", "body"), [("/async-name", "ann ann"), ("/sync-name", "ann")])
def test_context_variables_go_from_middleware_to_endpoints(app: Serving, path: str, body: str) -> None:
    found = httpx.get(app.url + path, headers={"name": "ann"})
    assert (found.json(), found.headers["named"]) == (body, "ann")
    assert httpx.get(app.url + path).headers["named"] == "nobody", "each request has a context of its own"


def test_threads_of_anyio_and_of_asyncio(app: Serving) -> None:
    assert app.get("/threads").json["apart"] == [True, True]


def test_a_background_task_runs_after_the_response(app: Serving, rendezvous: Rendezvous) -> None:
    with httpx.Client(base_url=app.url, timeout=WAIT_SECONDS) as client:
        assert client.get("/later", params={"port": rendezvous.port}).json() == "at once"
        assert rendezvous.guest().word == "after the response"


def test_compression_by_middleware(app: Serving) -> None:
    found = httpx.get(f"{app.url}/text", headers={"accept-encoding": "gzip"})
    assert (found.json(), found.headers["content-encoding"]) == (framework_app.TEXT, "gzip")
    assert int(found.headers["content-length"]) < len(framework_app.TEXT)
    assert "content-encoding" not in httpx.get(f"{app.url}/text", headers={"accept-encoding": "identity"}).headers


def test_static_files(app: Serving) -> None:
    text = Path(framework_app.__file__).read_bytes()
    whole = httpx.get(f"{app.url}/static/framework_app.py")
    part = httpx.get(f"{app.url}/static/framework_app.py", headers={"range": "bytes=10-19"})
    unchanged = httpx.get(f"{app.url}/static/framework_app.py", headers={"if-none-match": whole.headers["etag"]})
    assert (whole.content, part.status_code, part.content) == (text, 206, text[10:20])
    assert (unchanged.status_code, unchanged.content) == (304, b"")


@pytest.mark.parametrize("flags", ["--worker-connections 1", "-k sync", "-k gthread --threads 1"])
def test_a_stream_ends_when_its_client_has_gone(tmp_path: Path, flags: str) -> None:
    """There is one slot: who comes next has it."""
    with serve_app(tmp_path, f"{flags} --timeout 5") as serving:
        serving.wait_ready("web")
        with httpx.stream("GET", f"{serving.url}/endless") as streamed:
            lines = streamed.iter_lines()
            assert next(lines) == "tick"
        assert serving.get("/text").status == 200


# Threads for blocking code, by the profile


@pytest.mark.parametrize(
    ("flags", "threads"),
    [
        ("", 40),
        ("--worker-connections 100", 100),
        ("--worker-connections 8", 40),
        ("-k sync", 40),
        ("-k gthread --threads 2", 40),
        ("-k gevent", 256),
    ],
)
def test_how_many_threads_a_loop_may_have(tmp_path: Path, flags: str, threads: int) -> None:
    with serve_app(tmp_path, flags) as serving:
        serving.wait_ready("web")
        assert serving.get("/threads").json["anyio"] == threads


def test_an_app_that_sets_a_number_itself_has_it(tmp_path: Path) -> None:
    with serve_app(tmp_path, "", APP_THREADS="7") as serving:
        serving.wait_ready("web")
        assert serving.get("/threads").json["anyio"] == 7


@pytest.mark.parametrize(
    ("flags", "count"),
    [(MANY, MORE_THAN_ANYIOS_DEFAULT), ("-k gthread --threads 3", 3), ("-k gevent", MORE_THAN_ANYIOS_DEFAULT)],
)
def test_all_sync_endpoints_that_have_begun_run_at_once(
    tmp_path: Path, rendezvous: Rendezvous, flags: str, count: int
) -> None:
    with serve_app(tmp_path, flags) as serving, ExitStack() as stack:
        serving.wait_ready("web")
        path = f"/meet?port={rendezvous.port}"
        asked: list[http.client.HTTPConnection] = [stack.enter_context(serving.asking(path)) for _ in range(count)]
        for guest in rendezvous.guests(count):
            guest.let_go("all here")
        assert [answer(connection).json for connection in asked] == ["all here"] * count


@pytest.mark.parametrize(("flags", "count"), [(MANY, MORE_THAN_ANYIOS_DEFAULT), ("-k gthread --threads 2", 40)])
def test_one_request_may_have_many_threads_of_asyncio(
    tmp_path: Path, rendezvous: Rendezvous, flags: str, count: int
) -> None:
    with serve_app(tmp_path, flags) as serving:
        serving.wait_ready("web")
        with serving.asking(f"/fan?port={rendezvous.port}&n={count}") as asked:
            for guest in rendezvous.guests(count):
                guest.let_go("here")
            assert answer(asked).json == ["here"] * count


def test_sync_endpoints_beyond_the_threads_wait_for_one(tmp_path: Path, rendezvous: Rendezvous) -> None:
    with serve_app(tmp_path, "", APP_THREADS="2") as serving, ExitStack() as stack:
        serving.wait_ready("web")
        path = f"/meet?port={rendezvous.port}"
        asked: list[http.client.HTTPConnection] = [stack.enter_context(serving.asking(path)) for _ in range(4)]
        for _ in range(2):
            first, second = rendezvous.guests(2)
            assert serving.get("/borrowed").json == 2
            first.let_go("here")
            second.let_go("here")
        assert [answer(connection).json for connection in asked] == ["here"] * 4


PLAIN = """
import sys

async def app(scope, receive, send):
    assert scope["type"] == "http"
    body = b"yes" if any(name.split(".")[0] == "anyio" for name in sys.modules) else b"no"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})
"""


def test_who_does_not_use_anyio_does_not_load_it(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(PLAIN)
    with Serving(tmp_path, "plain:app", "-w", "1", "-b", ANY_PORT) as serving:
        serving.wait_ready("web")
        assert serving.get().body == b"no"
