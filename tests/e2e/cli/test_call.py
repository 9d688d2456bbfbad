"""`clutch call` against a real server and with a pool of its own; `clutch doctor`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.clutch_process import FRONTS, TARGETS, Server, clutch
from support.rendezvous import Rendezvous


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    config = f'[pools.api]\ntarget = "http_tools"\nworkers = 2\n{FRONTS}'
    with Server(tmp_path_factory.mktemp("call"), config) as server:
        server.wait_ready("api")
        yield server


@pytest.fixture(params=["server", "own pool"])
def where(request: pytest.FixtureRequest) -> list[str]:
    """Both ways to call: what comes back is the same."""
    if request.param == "own pool":
        return ["--target", "http_tools"]
    return ["--url", f"http://{request.getfixturevalue('server').http}"]


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["add", "a=2", "b=3"], "5\n"),
        (["add", "--json", '{"a": 9007199254740993}'], "9007199254740994\n"),
        (["echo", 'value={"größe": [null, 1.5]}'], '{"größe": [null, 1.5]}\n'),
        (["echo", "value=plain text"], '"plain text"\n'),
        (["countdown", "n=3"], "3\n2\n1\n"),
        (["like_an_error"], '{"error": {"detail": "a value"}}\n'),
    ],
)
def test_prints_the_result(where: list[str], arguments: list[str], printed: str) -> None:
    tool, *more = arguments
    done = clutch("call", f"api.{tool}", *more, *where, cwd=TARGETS)
    assert (done.returncode, done.stdout, done.stderr) == (0, printed, "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["add"], ["The arguments do not fit", "a: Field required"]),
        (["add", "a=two"], ["a: Input should be a valid integer", '"two"']),
        (["ad", "a=1"], ["No such tool", "did you mean 'add'?"]),
        (["fail", "text=no tea"], ["ValueError: no tea", "Traceback", "http_tools.py"]),
        (["not_a_number"], ["$.items[1].price: nan"]),
        (["countdown", "n=3", "fail_at=2"], ["ValueError: no 2"]),
        (["echo", "--json", "{"], ["Invalid JSON"]),
    ],
)
def test_tells_what_is_wrong(where: list[str], arguments: list[str], words: list[str]) -> None:
    tool, *more = arguments
    done = clutch("call", f"api.{tool}", *more, *where, cwd=TARGETS)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    for word in words:
        assert word in done.stderr
    assert "clutch/cli" not in done.stderr  # never a traceback of our own


def test_gives_up_after_a_timeout(where: list[str], rendezvous: Rendezvous) -> None:
    done = clutch("call", "api.meet", f"port={rendezvous.port}", "--timeout", "300ms", *where, cwd=TARGETS)
    assert done.returncode == 1
    assert "The deadline passed" in done.stderr
    rendezvous.guest().wait_gone()


def test_a_tool_of_the_only_pool_needs_no_pool(server: Server) -> None:
    for place in (["--url", server.http], []):
        done = clutch("call", "add", "a=2", "b=3", *place, cwd=server.folder)
        assert (done.returncode, done.stdout, done.stderr) == (0, "5\n", "")


def test_an_unknown_pool(server: Server) -> None:
    done = clutch("call", "apu.add", "a=1", "--url", server.http, cwd=TARGETS)
    assert done.returncode == 1
    assert "No such pool: no pool 'apu'; did you mean 'api'?" in done.stderr


@pytest.mark.parametrize("profile", ["process", "thread", "async"])
def test_a_pool_of_its_own_in_any_profile(profile: str) -> None:
    flags = ["--target", "http_tools", "--profile", profile, "--workers", "1"]
    done = clutch("call", "add", "a=2", *flags, cwd=TARGETS)
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr


def test_a_target_that_does_not_import() -> None:
    done = clutch("call", "add", "--target", "no_such_module_here", cwd=TARGETS)
    assert (done.returncode, done.stdout) == (2, "")
    assert "No module named 'no_such_module_here'" in done.stderr


def test_flags_that_are_wrong() -> None:
    done = clutch("call", "add", "--target", "http_tools", "--workers", "0", "--profile", "proces", cwd=TARGETS)
    assert done.returncode == 2
    assert "2 problems" in done.stderr
    assert "did you mean process?" in done.stderr


def test_doctor(tmp_path: Path) -> None:
    done = clutch("doctor", "--json", "--target", "http_tools", cwd=TARGETS)
    facts = json.loads(done.stdout)
    assert (done.returncode, facts["ok"], facts["target"]["error"]) == (0, True, None)
    assert facts["extension"] is None
    assert facts["cpus"]["usable"] <= facts["cpus"]["affinity"]
    assert facts["descriptors"]["soft"] <= facts["descriptors"]["hard"]
