"""Connections of Django's in workers, outside its requests."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from clutch import Pool

TOOLS = """
import django
from django.conf import settings

settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db"}})
django.setup()
from asgiref.sync import sync_to_async
from clutch import tool
from django.db import connection


@tool
def query(fails):
    was_connected = is_connected()
    with connection.cursor() as cursor:
        cursor.execute("select 1")
    if fails:
        raise ValueError
    return was_connected


@tool
async def query_soon(fails):
    return await sync_to_async(query)(fails)


@tool
def is_connected():
    return connection.connection is not None


@tool
async def is_connected_soon():
    return await sync_to_async(is_connected)()
"""


def ask(fails: bool) -> bool:
    return bool(import_module("written_django").query(fails))


async def ask_soon(fails: bool) -> bool:
    return bool(await import_module("written_django").query_soon(fails))


@pytest.mark.parametrize("profile", ["process", "thread", "async"])
@pytest.mark.parametrize("tool", ["query", "query_soon"])
def test_calls_and_items_leave_no_old_connection(
    folder: Path, monkeypatch: pytest.MonkeyPatch, profile: str, tool: str
) -> None:
    """One that was lost would fail all that follow in this thread. SQLite loses none, but has some that are old."""
    monkeypatch.chdir(folder)
    (folder / "written_django.py").write_text(TOOLS)
    with Pool("written_django", profile=profile, workers=1, **({"threads": 1} if profile == "thread" else {})) as pool:
        for fails in (False, True, False):
            asked = pool.submit(tool, fails)
            assert (asked.exception(30) is not None) == fails
            assert not pool.call("is_connected" + tool.removeprefix("query"))
        items = ask if tool == "query" else ask_soon
        assert list(pool.map(items, [False] * 3, chunksize=3)) == [False] * 3, "none is left by the item before"


def test_a_connection_is_kept_as_long_as_django_says(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (folder / "keeping_django.py").write_text(TOOLS.replace('"NAME"', '"CONN_MAX_AGE": 60, "NAME"'))
    with Pool("keeping_django", workers=1) as pool:
        assert [pool.call("query", False) for _ in range(3)] == [False, True, True]
