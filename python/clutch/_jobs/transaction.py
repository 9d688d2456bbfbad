"""Jobs as a part of a transaction of the user's own, on SQLite."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from clutch import _core
from clutch.errors import ClutchError, ConfigError

SQLITE_MIN = (3, 31)
"""The oldest SQLite that reads the tables, and takes the statement that enqueues."""
ROW_ID_DIGITS = 19
LEGACY = getattr(sqlite3, "LEGACY_TRANSACTION_CONTROL", -1)
"""Python 3.12 has other ways of beginning a transaction besides."""


PARENT, LINK, LINKS_COUNT, TURN = _core.JobStore.LINKS


@dataclass(frozen=True, slots=True)
class Row:
    """A job that is to be written."""

    statement: str
    values: dict[str, Any]
    file: os.PathLike[str]
    after: Sequence[str]
    """Ids of the jobs that it comes after."""
    after_previous: int
    """It also comes after so many of the jobs before it."""

    @property
    def is_alone(self) -> bool:
        return not self.after and not self.after_previous


def statements(script: str) -> Iterator[str]:
    """Yields the statements one by one: `executescript` would end the transaction."""
    part = ""
    for line in script.splitlines(keepends=True):
        part += line
        if sqlite3.complete_statement(part):
            yield part
            part = ""


def insert(connection: sqlite3.Connection, rows: Sequence[Row]) -> list[tuple[str, bool]]:
    """Enqueue jobs in a transaction of the user's, all for one file; return their ids, and whether each is new.

    Where the file has no tables for jobs yet, they become a part of the transaction. Raises ConfigError if the
    connection is to another file, or Python's SQLite too old; ClutchError for tables of another version; ValueError for
    a job that comes after one that does not exist.
    """
    file = rows[0].file
    if sqlite3.sqlite_version_info < SQLITE_MIN:
        wanted = ".".join(map(str, SQLITE_MIN))
        raise ConfigError(
            f"connection=: the sqlite3 of this Python is SQLite {sqlite3.sqlite_version}, and {wanted} is the oldest "
            "that can write jobs: enqueue without connection=, after the commit"
        )
    text_factory = connection.text_factory
    if text_factory is not str:
        connection.text_factory = str
    try:
        are_there = tables_are_in(connection, file)
        if are_there:
            check_version(connection, file)
        if len(rows) == 1 and are_there and rows[0].is_alone:
            # One statement is a whole anyway, and may be within a loop over another's rows, where a savepoint may not.
            return [insert_one(connection, rows[0], [])]
        with together(connection):
            if not are_there:
                for part in statements(_core.JobStore.SCHEMA):
                    plain_cursor(connection).execute(part)
            told: list[tuple[str, bool]] = []
            for row in rows:
                told.append(insert_one(connection, row, [job for job, _ in told]))
            return told
    finally:
        if text_factory is not str:
            connection.text_factory = text_factory


@contextlib.contextmanager
def together(connection: sqlite3.Connection) -> Iterator[None]:
    """All that is written within is written, or nothing: in the transaction that there is, or would be for an INSERT of
    the user's own, or in one that ends here."""
    execute = plain_cursor(connection).execute
    if not connection.in_transaction and begins_by_itself(connection):
        # The module does so before an INSERT, but tables would be made, and committed, before it.
        execute(f"BEGIN {connection.isolation_level}")
    if connection.in_transaction:
        begin, end = "SAVEPOINT clutch_enqueue", "RELEASE clutch_enqueue"
        undo = ("ROLLBACK TO clutch_enqueue", "RELEASE clutch_enqueue")
    else:
        begin, end, undo = "BEGIN IMMEDIATE", "COMMIT", ("ROLLBACK",)
    execute(begin)
    try:
        yield
        execute(end)
    except BaseException:
        with contextlib.suppress(sqlite3.Error):  # some errors have rolled back everything
            for statement in undo:
                execute(statement)
        raise


def begins_by_itself(connection: sqlite3.Connection) -> bool:
    is_legacy: bool = getattr(connection, "autocommit", LEGACY) == LEGACY
    return is_legacy and connection.isolation_level is not None


def insert_one(connection: sqlite3.Connection, row: Row, before: Sequence[str]) -> tuple[str, bool]:
    """`before`: ids of the jobs that were enqueued before it."""
    execute = plain_cursor(connection).execute
    parents = [*row.after, *before[len(before) - row.after_previous :]]
    for parent in row.after:
        if execute(PARENT, {"parent": row_id(parent), "runs_anyway": row.values["runs_anyway"]}).fetchone() is None:
            raise ValueError(
                f"after: there is no job {parent} in {row.file}; one that ended long ago is deleted: leave it out, or "
                'say after_failure="run"'
            )
    cursor = plain_cursor(connection).execute(row.statement, row.values)
    if cursor.rowcount > 0:
        if parents:
            link(connection, cursor.lastrowid, parents, row.values["created_at"])
        return str(cursor.lastrowid), True
    found = execute("SELECT id FROM clutch_jobs WHERE unique_key = ? AND state < 3", (row.values["unique_key"],))
    if (job := found.fetchone()) is None:
        raise ClutchError(f"the job was not written: does a trigger of {row.file} keep it out?")
    # In one call each job comes after all before it, at least through others.
    if str(job[0]) in (*row.after, *(before if row.after_previous else ())):
        raise ValueError(f"after: job {job[0]} has the same unique key, so the job would come after itself")
    return str(job[0]), False


def link(connection: sqlite3.Connection, child: int | None, parents: Sequence[str], now: int) -> None:
    """Link a new job to those that it comes after: then it waits, is as any other, or is cancelled."""
    execute = plain_cursor(connection).execute
    for nr, parent in enumerate(parents):
        execute(LINK, {"child": child, "nr": nr, "parent": row_id(parent)})
    execute(LINKS_COUNT, {"child": child})
    execute(TURN, {"child": child, "parent": None, "now": now})


def row_id(job: str) -> int:
    """Returns the row of a job; jobs of other stores are never found."""
    return int(job) if job.isascii() and job.isdigit() and len(job) < ROW_ID_DIGITS else -1


def check_version(connection: sqlite3.Connection, file: os.PathLike[str]) -> None:
    known = _core.JobStore.SCHEMA_VERSION
    (found,) = plain_cursor(connection).execute("SELECT version FROM clutch_schema").fetchone()
    if found < known:
        raise ClutchError(
            f"{file}: its tables are of version {found}, and this Clutch writes {known}: call jobs.stats() once before "
            "a transaction, which brings them up to date"
        )
    if found > known:
        raise ClutchError(
            f"{file}: its tables are of version {found}, and this Clutch knows them up to {known}: install a newer one"
        )


def plain_cursor(connection: sqlite3.Connection) -> sqlite3.Cursor:
    """Returns a cursor whose rows are tuples, whatever the program's own have."""
    cursor = connection.cursor(sqlite3.Cursor)
    cursor.row_factory = None
    return cursor


def tables_are_in(connection: sqlite3.Connection, file: os.PathLike[str]) -> bool:
    """Returns whether this file has the tables of jobs already. Raises ConfigError if inserts without the name of a
    database go elsewhere."""
    known = [row[1:] for row in plain_cursor(connection).execute("PRAGMA database_list")]
    names = [name for name, path in known if path and os.path.exists(path) and is_same(path, file)]
    if not names:
        raise ConfigError(
            f"connection=: it is not a connection to {file}, where the jobs are, so they cannot share a transaction"
        )
    # As SQLite looks for a table: in `temp`, then in the order in which they were attached.
    order = sorted((name for name, _ in known), key=lambda name: name != "temp")
    first = next((name for name in order if has_tables(connection, name)), None)
    goes_to = first or "main"
    if goes_to not in names:
        raise ConfigError(
            f"connection=: {file} is attached as {names[0]}, but jobs would go to {goes_to}; open {file} as the "
            f"connection's own file, or call jobs.stats() once so that {names[0]} has the tables"
        )
    return first is not None


def is_same(path: str, file: os.PathLike[str]) -> bool:
    return os.path.exists(file) and os.path.samefile(path, file)


def has_tables(connection: sqlite3.Connection, database: str) -> bool:
    quoted = database.replace('"', '""')
    found = plain_cursor(connection).execute(f"SELECT 1 FROM \"{quoted}\".sqlite_master WHERE name = 'clutch_jobs'")
    return found.fetchone() is not None
