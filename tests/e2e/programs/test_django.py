"""Connections of Django's in workers, outside its requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from clutch import Pool

TOOLS = """
import django
from django.conf import settings

settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db"}})
django.setup()
from clutch import tool
from django.db import connection


@tool
def query(fails):
    with connection.cursor() as cursor:
        cursor.execute("select 1")
    if fails:
        raise ValueError


@tool
def is_connected():
    return connection.connection is not None
"""


@pytest.mark.parametrize("profile", ["process", "thread"])
def test_a_call_that_fails_leaves_no_old_connection(
    folder: Path, monkeypatch: pytest.MonkeyPatch, profile: str
) -> None:
    """One that was lost would fail all that follow in this thread. SQLite loses none, but has some that are old."""
    monkeypatch.chdir(folder)
    (folder / "written_django.py").write_text(TOOLS)
    with Pool("written_django", profile=profile, workers=1, **({"threads": 1} if profile == "thread" else {})) as pool:
        pool.call("query", False)
        assert pool.call("is_connected"), "kept from call to call"
        assert isinstance(pool.submit("query", True).exception(30), ValueError)
        assert not pool.call("is_connected")
