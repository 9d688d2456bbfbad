"""Databases in files and in memory."""

from __future__ import annotations

from .case import STANDARD, case

CASES = [
    case(
        "sqlite3",
        "an open database",
        """
        import os, sqlite3, tempfile
        db = sqlite3.connect(os.path.join(tempfile.mkdtemp(), "a.db"), check_same_thread=False)
        db.execute("create table t (v)")
        db.executemany("insert into t values (?)", [(n,) for n in range(10)])
        db.commit()
        """,
        """return db.execute("select v from t where v = ?", (n,)).fetchone()[0]""",
        STANDARD,
    ),
    case(
        "tinydb",
        "an open file",
        """
        import tempfile
        from tinydb import TinyDB
        db = TinyDB(tempfile.mktemp())
        db.insert({"v": 1})
        """,
        "return len(db.all()) + n",
    ),
    case(
        "diskcache",
        "a cache",
        """
        import tempfile, diskcache
        cache = diskcache.Cache(tempfile.mkdtemp())
        cache["k"] = 1
        """,
        """return cache["k"] + n""",
    ),
    case(
        "lmdb",
        "an environment",
        """
        import tempfile, lmdb
        env = lmdb.open(tempfile.mkdtemp())
        with env.begin(write=True) as t:
            t.put(b"k", b"v")
        """,
        """
        with env.begin() as t:
            return t.get(b"k")
        """,
    ),
    case(
        "duckdb-file",
        "an open database",
        """
        import os, tempfile
        import duckdb
        db = duckdb.connect(os.path.join(tempfile.mkdtemp(), "a.duckdb"))
        db.execute("create table t as select * from range(1000)")
        """,
        """return db.cursor().execute("select sum(range) from t").fetchone()[0] + n""",
        "duckdb",
    ),
    case(
        "sqlite3-memory",
        "a database in memory, of the thread that made it",
        """
        import sqlite3
        db = sqlite3.connect(":memory:")
        db.execute("create table t (v)")
        db.execute("insert into t values (7)")
        """,
        """return db.execute("select v from t").fetchone()[0] + n""",
        STANDARD,
    ),
    case(
        "shelve",
        "an open shelf",
        """
        import os, shelve, tempfile
        shelf = shelve.open(os.path.join(tempfile.mkdtemp(), "a"))
        shelf.update({str(m): m for m in range(10)})
        shelf.sync()
        """,
        "return [shelf[str(m % 10)] for m in range(n, n + 300)]",
        STANDARD,
    ),
    case(
        "apsw",
        "a connection",
        """
        import os, tempfile
        import apsw
        db = apsw.Connection(os.path.join(tempfile.mkdtemp(), "a.db"))
        db.execute("create table t (v)")
        db.execute("insert into t values (7)")
        """,
        """return db.execute("select v from t").fetchone()[0] + n""",
    ),
    case(
        "sqlitedict",
        "a dictionary with a thread",
        """
        import os, tempfile
        from sqlitedict import SqliteDict
        words = SqliteDict(os.path.join(tempfile.mkdtemp(), "a.db"), autocommit=True)
        words["k"] = 7
        """,
        """return words["k"] + n""",
    ),
    case(
        "rocksdict",
        "an open database",
        """
        import tempfile
        from rocksdict import Rdict
        db = Rdict(tempfile.mkdtemp())
        db["k"] = 7
        """,
        """return db["k"] + n""",
    ),
    case(
        "plyvel",
        "an open database",
        """
        import tempfile
        import plyvel
        db = plyvel.DB(tempfile.mkdtemp(), create_if_missing=True)
        db.put(b"k", b"v")
        """,
        """return db.get(b"k") + str(n).encode()""",
    ),
    case(
        "kuzu",
        "a graph in memory",
        """
        import kuzu
        db = kuzu.Connection(kuzu.Database(":memory:"))
        db.execute("return 1").get_next()
        """,
        """return db.execute(f"return {n} + 1").get_next()[0]""",
    ),
    case(
        "zodb",
        "an open storage",
        """
        import os, tempfile
        import transaction, ZODB, ZODB.FileStorage
        db = ZODB.DB(ZODB.FileStorage.FileStorage(os.path.join(tempfile.mkdtemp(), "a.fs")))
        connection = db.open()
        connection.root()["k"] = 7
        transaction.commit()
        """,
        """return connection.root()["k"] + n""",
        "ZODB",
    ),
    case(
        "persist-queue",
        "a queue in SQLite",
        """
        import tempfile
        import persistqueue
        queue = persistqueue.SQLiteQueue(tempfile.mkdtemp(), auto_commit=True, multithreading=True)
        queue.put("first")
        """,
        """
        queue.put(str(n))
        return bool(queue.get(timeout=5))
        """,
    ),
    case(
        "zipfile",
        "an open archive",
        """
        import os, tempfile, zipfile
        path = os.path.join(tempfile.mkdtemp(), "a.zip")
        with zipfile.ZipFile(path, "w") as out:
            for m in range(6):
                out.writestr(f"{m}", f"{m}" * 100000)
        archive = zipfile.ZipFile(path)
        """,
        """return [archive.read(f"{m % 6}")[:3] for m in range(n, n + 300)]""",
        STANDARD,
    ),
    case(
        "open-file",
        "a file, open to read records of it",
        """
        import os, tempfile
        path = os.path.join(tempfile.mkdtemp(), "a")
        with open(path, "w") as out:
            out.writelines(f"{m:>7}\\n" for m in range(1000))
        file = open(path, "rb", buffering=0)
        def record(m):
            file.seek(8 * m)
            return int(file.read(8))
        """,
        "return [record(m % 1000) for m in range(n, n + 30000)]",
        STANDARD,
    ),
    case(
        "written-file",
        "a file with a line that is not written yet",
        """
        import os, tempfile
        path = os.path.join(tempfile.mkdtemp(), "a.csv")
        out = open(path, "w")
        out.write("header\\n")
        """,
        """
        import time
        time.sleep(0.2)
        out.write(f"{n}\\n")
        out.flush()
        time.sleep(0.2)
        with open(path) as file:
            return file.read().count("header")
        """,
        STANDARD,
    ),
    case(
        "temporary-directory",
        "a directory that goes when it is no longer used",
        """
        import os, tempfile
        folder = tempfile.TemporaryDirectory()
        path = os.path.join(folder.name, "a")
        with open(path, "w") as out:
            out.write("some words")
        """,
        """
        with open(path) as file:
            return file.read() + str(n)
        """,
        STANDARD,
    ),
]
