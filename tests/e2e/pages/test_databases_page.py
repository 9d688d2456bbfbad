"""The examples of docs/databases.md, on a real PostgreSQL where one is installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import clutch
from support.clutch_process import clutch as command
from support.clutch_process import environment
from support.pages import ROOT, write_files

PAGE = ROOT / "docs/databases.md"


@pytest.fixture
def postgres() -> Iterator[str]:
    """The URL of a server of its own, in a folder that its user reaches."""
    programs = [shutil.which(name) for name in ("initdb", "pg_ctl")]
    if None in programs:
        pytest.skip("PostgreSQL is not installed: sudo apt-get install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="clutch-postgres-"))
    as_user: list[str] = []
    if os.getuid() == 0:
        shutil.chown(folder, "postgres")
        as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]

    def run(program: str | None, *arguments: str) -> None:
        command = [*as_user, str(program), *arguments]
        subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL, timeout=60)

    try:
        yield from serve(run, programs, folder)
    finally:
        shutil.rmtree(folder)


def serve(run: Callable[..., None], programs: list[str | None], folder: Path) -> Iterator[str]:
    run(programs[0], "-D", "data", "-U", "postgres", "--auth=trust", "--no-sync")
    run(programs[1], "-D", "data", "-w", "-l", "log", "-o", f"-k {folder} -c listen_addresses=''", "start")
    try:
        yield f"postgresql://postgres@/postgres?host={folder}"
    finally:
        run(programs[1], "-D", "data", "-m", "immediate", "stop")


@pytest.mark.parametrize(
    ("module", "tool", "needs", "profile", "answer"),
    [("payments", "total", "psycopg_pool", "thread", 42), ("stock", "left", "asyncpg", "async", 42)],
)
def test_drivers_connect_in_each_worker(
    tmp_path: Path, postgres: str, module: str, tool: str, needs: str, profile: str, answer: int
) -> None:
    pytest.importorskip(needs)
    write_files(PAGE, tmp_path)
    call = ("call", tool, "--target", module, "--profile", profile)
    done = command(*call, cwd=tmp_path, env={**environment(), "DATABASE_URL": postgres})
    assert (done.returncode, json.loads(done.stdout or "null")) == (0, answer), done.stderr


OF_DJANGO = """
import os
import django
from django.conf import settings

HOST = os.environ["PGHOST"]
one = {"ENGINE": "django.db.backends.postgresql", "HOST": HOST, "USER": "postgres", "NAME": "postgres"}
one |= {"CONN_MAX_AGE": 600, "CONN_HEALTH_CHECKS": os.environ["CHECKS"] == "1"}
settings.configure(DATABASES={"default": one})
django.setup()
from clutch import tool
from django.db import connection


@tool
def pid():
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return cursor.fetchone()[0]


@tool
def end(pid):
    import psycopg

    with psycopg.connect(host=HOST, user="postgres", dbname="postgres", autocommit=True) as other:
        return other.execute("SELECT pg_terminate_backend(%s, 10000)", [pid]).fetchone()[0]
"""


@pytest.mark.parametrize("checks", [True, False])
@pytest.mark.parametrize("profile", ["process", "thread"])
def test_django_connects_anew_after_a_lost_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres: str, profile: Any, checks: bool
) -> None:
    pytest.importorskip("psycopg")
    (tmp_path / "of_django.py").write_text(OF_DJANGO)
    monkeypatch.setenv("PGHOST", postgres.partition("host=")[2])
    monkeypatch.setenv("CHECKS", str(int(checks)))
    threads = {"threads": 1} if profile == "thread" else {}
    with clutch.Pool("of_django", profile=profile, workers=1, env={"PYTHONPATH": str(tmp_path)}, **threads) as pool:
        first = pool.call("pid")
        assert pool.call("pid") == first, "as CONN_MAX_AGE says"
        assert pool.call("end", first)
        errors = [asked.exception(30) for asked in [pool.submit("pid") for _ in range(3)]]
        assert [error is None for error in errors] == [checks, True, True], errors
