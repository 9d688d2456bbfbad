"""Jobs as a part of a transaction of the user's own, on SQLite."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from typing import Any

from clutch import _core
from clutch.errors import ClutchError


def statements(script: str) -> Iterator[str]:
    """One by one: `executescript` would end the transaction."""
    part = ""
    for line in script.splitlines(keepends=True):
        part += line
        if sqlite3.complete_statement(part):
            yield part
            part = ""


def insert(
    connection: sqlite3.Connection, statement: str, row: dict[str, Any], file: os.PathLike[str]
) -> tuple[str, bool]:
    """Enqueue one job in a transaction of the user's; return its id, and whether it is new.

    Where the file has no tables for jobs yet, they become a part of the transaction.
    """
    try:
        cursor = plain_cursor(connection).execute(statement, row)
    except sqlite3.OperationalError as error:
        if "no column named" in str(error):
            raise ClutchError(
                f"{error}: {file} is of an older version; call jobs.stats() once before a transaction"
            ) from error
        if "no such table: clutch_jobs" not in str(error):
            raise
        for part in statements(_core.JobStore.SCHEMA):
            plain_cursor(connection).execute(part)
        cursor = plain_cursor(connection).execute(statement, row)
    if cursor.rowcount > 0:
        return str(cursor.lastrowid), True
    found = plain_cursor(connection).execute(
        "SELECT id FROM clutch_jobs WHERE unique_key = ? AND state < 3", (row["unique_key"],)
    )
    return str(found.fetchone()[0]), False


def plain_cursor(connection: sqlite3.Connection) -> sqlite3.Cursor:
    """One whose rows are tuples, whatever the program wants of its own."""
    cursor = connection.cursor(sqlite3.Cursor)
    cursor.row_factory = None
    return cursor


def has_file(connection: sqlite3.Connection, file: os.PathLike[str]) -> bool:
    files = (row[2] for row in plain_cursor(connection).execute("PRAGMA database_list"))
    return os.path.exists(file) and any(os.path.exists(one) and os.path.samefile(one, file) for one in files if one)
