"""What `pip install clutch` gives: a wheel in an environment that has nothing else serves, answers calls and maps.

The suite makes a wheel for its own interpreter, of what `make build` has compiled. `make test-wheel` takes those in
dist/ instead (CLUTCH_TEST_WHEELS), each with the interpreter that it is for.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.clutch_process import WAIT_SECONDS, Answer, Dispatcher, answer
from support.pages import shown, write_files

ROOT = Path(__file__).resolve().parents[2]
LAST_MINOR = 15
GIVEN = os.environ.get("CLUTCH_TEST_WHEELS")
INSTALL_SECONDS_MAX = 100
# What the wheel names and what these need; an extra that came along would be here, too.
INSTALLED = {"clutch", "click", "cloudpickle", "pydantic", "rich"} | {
    *("annotated-types", "pydantic-core", "typing-extensions", "typing-inspection"),
    *("markdown-it-py", "mdurl", "pygments"),
}

WEB = """
def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"hello"]
"""
README = ROOT / "README.md"


def build(folder: Path) -> Path:
    """A wheel of what is compiled already: the build that `make test` asks for."""
    profile = ["--profile", "checked"]
    command = [Path(sys.prefix, "bin/maturin"), "build", *profile, "--compatibility", "linux", "--out", folder]
    own = {"VIRTUAL_ENV": sys.prefix, "CARGO_TARGET_DIR": str(ROOT / "target")}
    done = subprocess.run(
        [*map(str, command), "--interpreter", sys.executable],
        cwd=ROOT,
        env=os.environ | own,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


def given() -> list[Path]:
    """Those of this version and machine."""
    name = f"clutch-{importlib.metadata.version('clutch')}-*{platform.machine()}.whl"
    found = sorted(Path(GIVEN).glob(name)) if GIVEN else []
    assert found or not GIVEN, f"no {name} in {GIVEN}: make wheels"
    return found


def interpreter_for(wheel: Path) -> str:
    """For the wheel of the stable ABI, the last Python that is here: those before have their own."""
    minor, abi, free_threaded = re.findall(r"-cp3(\d+)-(abi3|cp3\d+)(t?)-", wheel.name)[0]
    minors = (LAST_MINOR, minor) if abi == "abi3" else (minor,)
    for series in [f"3.{minor}{free_threaded}" for minor in minors]:
        found = subprocess.run([ROOT / "tools/find-python.sh", series], capture_output=True, text=True)
        if found.returncode == 0:
            return found.stdout.strip()
    pytest.skip(f"no Python {series} here")


@pytest.fixture(scope="module", params=given() or [None], ids=lambda path: path.name if path else "made here")
def wheel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return request.param or build(tmp_path_factory.mktemp("dist"))


class Environment:
    """Made without pip, so that only the wheel and what it needs are in it."""

    def __init__(self, folder: Path, wheel: Path, *more: str) -> None:
        python = interpreter_for(wheel) if GIVEN else sys.executable
        self.folder = folder
        subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True, timeout=INSTALL_SECONDS_MAX)
        constraints = ["-c", str(ROOT / "tools/constraints-free-threaded.txt")] if "t-" in wheel.name else []
        self.pip("install", "--quiet", *constraints, str(wheel), *more)

    def pip(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "pip", "--python", str(self.folder / "bin/python")]
        command += [*arguments, "--disable-pip-version-check"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def variables(self) -> dict[str, str]:
        """Nothing that would let it find this repository, or change a configuration."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("CLUTCH_", "PYTHON"))}
        return kept | {"PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}

    @contextlib.contextmanager
    def dispatcher(self, folder: Path, *arguments: str) -> Iterator[Dispatcher]:
        command = [str(self.folder / "bin/clutch"), *arguments]
        with Dispatcher(folder, command, env=self.variables()) as started:
            yield started
            started.terminate()
            assert started.wait() == 0, started.err.text


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("environment") / "env", wheel)


def ask(address: str, method: str, path: str, body: object = None) -> Answer:
    connection = http.client.HTTPConnection(address, timeout=WAIT_SECONDS)
    with contextlib.closing(connection):
        connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
        return answer(connection)


def test_the_extension_is_stripped(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (extension,) = (name for name in archive.namelist() if name.endswith(".so"))
        content = archive.read(extension)
    assert b".dynsym\0" in content
    assert b".symtab\0" not in content
    assert b".debug_info\0" not in content


def test_it_brings_its_licenses_types_and_addresses(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (archive.read(name).decode() for name in names if name.endswith(".dist-info/METADATA"))
    assert {"clutch/py.typed", "clutch/_core.pyi"} <= set(names)
    assert sum("/licenses/LICENSE" in name for name in names) == 2
    assert "Project-URL: Repository, https://" in metadata


def test_nothing_but_what_it_needs_is_installed(environment: Environment) -> None:
    listed = json.loads(environment.pip("list", "--format", "json"))
    assert {package["name"].lower().replace("_", "-") for package in listed} == INSTALLED


def test_it_serves_an_app(environment: Environment, tmp_path: Path) -> None:
    (tmp_path / "web.py").write_text(WEB)
    with environment.dispatcher(tmp_path, "serve", "web:app", "-b", "127.0.0.1:0", "-w", "1") as serving:
        response = ask(serving.err.wait(r"serve: http://(\S+)")[1], "GET", "/")
        assert (response.status, response.body) == (200, b"hello")


def test_it_serves_the_app_of_the_readme(wheel: Path, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    if not GIVEN:
        pytest.skip("other tests serve FastAPI")
    environment = Environment(tmp_path_factory.mktemp("fastapi") / "env", wheel, "fastapi")
    write_files(README, tmp_path)
    with environment.dispatcher(tmp_path, "serve", "web:app", "-b", "127.0.0.1:0") as serving:
        response = ask(serving.err.wait(r"serve: http://(\S+)")[1], "GET", "/hello/ann")
        assert response.body == b'{"hello":"ann"}'


def test_it_answers_a_call_over_http(environment: Environment, tmp_path: Path) -> None:
    write_files(README, tmp_path)
    config = tmp_path / "clutch.toml"
    config.write_text(config.read_text().replace(":8080", ":0"))
    with environment.dispatcher(tmp_path, "run") as running:
        running.wait_ready("shop")
        address = running.err.wait(r"http: http://(\S+?)(?:\"|$)")[1]
        assert ask(address, "POST", "/pools/shop/tools/total", {"prices": [10, 20]}).result == 36.0


def test_a_script_prints_what_the_readme_shows(environment: Environment, tmp_path: Path) -> None:
    write_files(README, tmp_path)
    command = [environment.folder / "bin/python", "survive.py"]
    variables = environment.variables()
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert done.returncode == 0, done.stderr
    ((_, promised),) = shown(README)
    assert done.stdout == promised
    found = subprocess.check_output(
        [command[0], "-c", "import clutch; print(clutch.__file__)"], env=variables, text=True
    )
    assert Path(found).is_relative_to(environment.folder)
