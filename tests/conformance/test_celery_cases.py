"""Celery's own integration tests, with a node of Clutch in place of Celery's worker.

CLUTCH_TEST_CELERY=all runs the whole list (`make celery-suite`, about fifteen minutes); else a part of it runs.
CLUTCH_TEST_CELERY_POOL=custom runs them with Celery's worker on a pool of Clutch.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from suites import path_of

from support.clutch_process import environment
from support.redis_server import RedisServer

HERE = Path(__file__).parent
CASES = HERE.joinpath("celery_cases.txt").read_text().splitlines()
"""Those that a worker of Celery passes when it is another program; sixteen look into their own process for it."""
ALL = os.environ.get("CLUTCH_TEST_CELERY") == "all"
PART = "test_group_chains.py", "test_redis_backend.py", "test_inspect.py"
SLOW = ("flag_allow", "allow_error_cb")
"""Four of these take eleven minutes."""
APP = "celery_elsewhere"
NODES = {
    "clutch": f"{{python}} -m clutch work {APP}:app --workers 2 --node {{node}}",
    "custom": f"{{python}} -m celery -A {APP} worker --pool custom -c 2 -n {{node}} --without-gossip --without-mingle",
}


def test_celerys_own_integration_tests(tmp_path: Path) -> None:
    python = path_of("celery", "env", "bin", "python")
    folder = path_of("celery", "suite")
    cases = [case for case in CASES if is_wanted(case)]
    listed = tmp_path / "cases.txt"
    listed.write_text("\n".join(cases))
    command = NODES[os.environ.get("CLUTCH_TEST_CELERY_POOL", "clutch")]
    with free_port() as port, RedisServer(tmp_path) as redis:
        # Some tests ask the server themselves, by its port.
        redis.kill()
        redis.start("--port", port, "--appendonly", "no")
        broker = f"redis://127.0.0.1:{port}/0"
        env = {
            **environment(),
            "TEST_BROKER": broker,
            "TEST_BACKEND": broker,
            "REDIS_HOST": "127.0.0.1",
            "REDIS_PORT": port,
            "PYTHONPATH": os.pathsep.join([str(folder), str(HERE)]),
            "CELERY_SUITE_WORKER": command.replace("{python}", sys.executable),
            "CELERY_SUITE_LOG": str(tmp_path / "worker.log"),
            "CELERY_CUSTOM_WORKER_POOL": "clutch.celery:TaskPool",
        }
        options = ["-p", "celery.contrib.pytest", "-p", APP, "-q", "-rfR", "--timeout", "300", "-W", "ignore"]
        options += ["--reruns", "2", "--only-rerun", "the client missed the notice"]
        done = subprocess.run(
            [python, "-m", "pytest", *options, f"@{listed}"], cwd=folder, env=env, capture_output=True, text=True
        )
    assert done.returncode == 0, done.stdout[-5000:] + (tmp_path / "worker.log").read_text()[-3000:]


@contextlib.contextmanager
def free_port() -> Iterator[str]:
    with socket.socket() as found:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    yield str(port)


def is_wanted(case: str) -> bool:
    if ALL:
        return True
    return any(part in case for part in PART) and not any(word in case for word in SLOW)


def test_the_list_is_of_files_that_are_there() -> None:
    folder = path_of("celery", "suite")
    files = {case.partition("::")[0] for case in CASES}
    assert all((folder / file).exists() for file in files)
    assert len(CASES) > 300
