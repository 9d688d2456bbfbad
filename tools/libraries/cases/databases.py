"""Databases of servers, and what maps objects to them."""

from __future__ import annotations

from .case import case

CASES = [
    case(
        "sqlalchemy-sqlite",
        "an engine that has connected",
        """
        import os, tempfile, sqlalchemy as sa
        engine = sa.create_engine("sqlite:///" + os.path.join(tempfile.mkdtemp(), "a.db"))
        with engine.begin() as c:
            c.execute(sa.text("create table t (v int)"))
            c.execute(sa.text("insert into t values (1)"))
        """,
        """
        with engine.connect() as c:
            return c.execute(sa.text("select v from t")).scalar() + n
        """,
        "sqlalchemy",
    ),
    case(
        "sqlalchemy-postgres",
        "an engine that has connected",
        """
        import os, sqlalchemy as sa
        engine = sa.create_engine(os.environ["POSTGRES_URL"].replace("postgresql", "postgresql+psycopg"))
        with engine.begin() as c:
            c.execute(sa.text("select 1"))
        """,
        """
        with engine.connect() as c:
            return [c.execute(sa.text(f"select {m}")).scalar() for m in range(n, n + 50)]
        """,
        "sqlalchemy",
        "psycopg[binary]",
        server="postgres",
    ),
    case(
        "psycopg",
        "a connection",
        """
        import os, psycopg
        db = psycopg.connect(os.environ["POSTGRES_URL"], autocommit=True)
        db.execute("select 1")
        """,
        """return [db.execute(f"select {m}").fetchone()[0] for m in range(n, n + 50)]""",
        "psycopg[binary]",
        server="postgres",
    ),
    case(
        "psycopg-pool",
        "a pool of connections",
        """
        import os
        from psycopg_pool import ConnectionPool
        pool = ConnectionPool(os.environ["POSTGRES_URL"], min_size=1, open=True)
        with pool.connection() as c:
            c.execute("select 1")
        """,
        """
        with pool.connection() as c:
            return [c.execute(f"select {m}").fetchone()[0] for m in range(n, n + 50)]
        """,
        "psycopg-pool",
        "psycopg[binary]",
        server="postgres",
    ),
    case(
        "psycopg2",
        "a connection",
        """
        import os, psycopg2
        db = psycopg2.connect(os.environ["POSTGRES_URL"])
        cursor = db.cursor()
        cursor.execute("select 1")
        """,
        """
        cursor.execute(f"select {n}")
        return cursor.fetchone()[0]
        """,
        "psycopg2-binary",
        server="postgres",
    ),
    case(
        "redis",
        "a client that has asked",
        """
        import os, redis
        r = redis.from_url(os.environ["REDIS_URL"])
        r.set("k", "v")
        """,
        "return [r.echo(str(m)) for m in range(n, n + 50)]",
        server="redis",
    ),
    case(
        "redis-pubsub",
        "a subscription in a thread",
        """
        import os, redis
        r = redis.from_url(os.environ["REDIS_URL"])
        p = r.pubsub()
        p.subscribe(c=lambda m: None)
        p.run_in_thread(daemon=True)
        """,
        "return r.echo(str(n))",
        "redis",
        server="redis",
    ),
    case(
        "peewee",
        "an open database",
        """
        import os, tempfile
        from peewee import SqliteDatabase
        db = SqliteDatabase(os.path.join(tempfile.mkdtemp(), "a.db"))
        db.connect()
        db.execute_sql("create table t (v)")
        """,
        """return db.execute_sql(f"select {n}").fetchone()[0]""",
    ),
    case(
        "psycopg-async-pool",
        "a pool of asynchronous connections",
        """
        import asyncio, os
        from psycopg_pool import AsyncConnectionPool
        loop = asyncio.new_event_loop()
        async def opened():
            pool = AsyncConnectionPool(os.environ["POSTGRES_URL"], min_size=1, open=False)
            await pool.open(wait=True)
            return pool
        pool = loop.run_until_complete(opened())
        """,
        """
        async def ask(m):
            async with pool.connection() as c:
                return (await (await c.execute(f"select {m}")).fetchone())[0]
        return [loop.run_until_complete(ask(m)) for m in range(n, n + 50)]
        """,
        "psycopg-pool",
        "psycopg[binary]",
        server="postgres",
        in_greenlets=False,
    ),
    case(
        "asyncpg",
        "a pool of connections",
        """
        import asyncio, os
        import asyncpg
        loop = asyncio.new_event_loop()
        async def opened():
            return await asyncpg.create_pool(os.environ["POSTGRES_URL"], min_size=1)
        pool = loop.run_until_complete(opened())
        """,
        """return [loop.run_until_complete(pool.fetchval("select $1::int", m)) for m in range(n, n + 50)]""",
        server="postgres",
        in_greenlets=False,
    ),
    case(
        "sqlalchemy-asyncio",
        "an asynchronous engine that has connected",
        """
        import asyncio, os, tempfile
        import sqlalchemy as sa
        from sqlalchemy.ext.asyncio import create_async_engine
        loop = asyncio.new_event_loop()
        engine = create_async_engine("sqlite+aiosqlite:///" + os.path.join(tempfile.mkdtemp(), "a.db"))
        async def ask(n):
            async with engine.connect() as c:
                return (await c.execute(sa.text(f"select {n}"))).scalar()
        loop.run_until_complete(ask(1))
        """,
        "return loop.run_until_complete(ask(n))",
        "sqlalchemy[asyncio]",
        "aiosqlite",
        in_greenlets=False,
    ),
    case(
        "aiosqlite",
        "a connection in its thread",
        """
        import asyncio, os, tempfile
        import aiosqlite
        loop = asyncio.new_event_loop()
        async def opened():
            return await aiosqlite.connect(os.path.join(tempfile.mkdtemp(), "a.db"))
        db = loop.run_until_complete(opened())
        """,
        """
        async def ask():
            async with db.execute(f"select {n}") as cursor:
                return (await cursor.fetchone())[0]
        return loop.run_until_complete(ask())
        """,
        in_greenlets=False,
    ),
    case(
        "pony",
        "a mapped class in SQLite",
        """
        import os, tempfile
        from pony import orm
        db = orm.Database()
        class Word(db.Entity):
            text = orm.Required(str)
        db.bind("sqlite", os.path.join(tempfile.mkdtemp(), "a.db"), create_db=True)
        db.generate_mapping(create_tables=True)
        with orm.db_session:
            Word(text="some")
        """,
        """
        with orm.db_session:
            return Word.select().count() + n
        """,
    ),
    case(
        "tortoise-orm",
        "a mapped class in SQLite",
        """
        import asyncio, os, tempfile
        from tortoise import Tortoise, fields
        from tortoise.models import Model
        class Word(Model):
            id = fields.IntField(primary_key=True)
            text = fields.TextField()
        loop = asyncio.new_event_loop()
        async def opened():
            path = os.path.join(tempfile.mkdtemp(), "a.db")
            modules = {"models": [__name__]}
            await Tortoise.init(db_url="sqlite://" + path, modules=modules, _enable_global_fallback=True)
            await Tortoise.generate_schemas()
            await Word.create(text="some")
        loop.run_until_complete(opened())
        """,
        """
        async def count():
            return await Word.all().count()
        return loop.run_until_complete(count()) + n
        """,
        in_greenlets=False,
    ),
    case(
        "pymysql",
        "a connection",
        """
        import os
        from urllib.parse import urlsplit
        import pymysql
        server = urlsplit(os.environ["MYSQL_URL"])
        db = pymysql.connect(host=server.hostname, port=server.port, user=server.username)
        def ask(n):
            with db.cursor() as cursor:
                cursor.execute(f"select {n}")
                return cursor.fetchone()[0]
        ask(1)
        """,
        "return [ask(m) for m in range(n, n + 50)]",
        server="mysql",
    ),
    case(
        "mysql-connector",
        "a pool of connections",
        """
        import os
        from urllib.parse import urlsplit
        from mysql.connector.pooling import MySQLConnectionPool
        server = urlsplit(os.environ["MYSQL_URL"])
        pool = MySQLConnectionPool(pool_size=2, host=server.hostname, port=server.port, user=server.username)
        def ask(n):
            with pool.get_connection() as db, db.cursor() as cursor:
                cursor.execute(f"select {n}")
                return cursor.fetchone()[0]
        ask(1)
        """,
        "return [ask(m) for m in range(n, n + 50)]",
        "mysql-connector-python",
        server="mysql",
    ),
    case(
        "redis-asyncio",
        "an asynchronous client that has asked",
        """
        import asyncio, os
        import redis.asyncio as redis
        loop = asyncio.new_event_loop()
        r = redis.from_url(os.environ["REDIS_URL"])
        loop.run_until_complete(r.set("k", "v"))
        """,
        "return [loop.run_until_complete(r.echo(str(m))) for m in range(n, n + 50)]",
        "redis",
        server="redis",
        in_greenlets=False,
    ),
    case(
        "redis-blocking-pool",
        "a client with a pool that has a limit",
        """
        import os
        import redis
        pool = redis.BlockingConnectionPool.from_url(os.environ["REDIS_URL"], max_connections=2, timeout=5)
        r = redis.Redis(connection_pool=pool)
        r.set("k", "v")
        """,
        "return [r.echo(str(m)) for m in range(n, n + 50)]",
        "redis",
        server="redis",
    ),
    case(
        "valkey-glide",
        "a client that has asked",
        """
        import asyncio, os
        from urllib.parse import urlsplit
        from glide import GlideClient, GlideClientConfiguration, NodeAddress
        loop = asyncio.new_event_loop()
        async def opened():
            server = NodeAddress("127.0.0.1", urlsplit(os.environ["REDIS_URL"]).port)
            return await GlideClient.create(GlideClientConfiguration([server]))
        client = loop.run_until_complete(opened())
        loop.run_until_complete(client.set("k", "v"))
        """,
        "return [loop.run_until_complete(client.echo(str(m))) for m in range(n, n + 50)]",
        server="redis",
        in_greenlets=False,
    ),
    case(
        "pymemcache",
        "a client with a pool",
        """
        import os
        from pymemcache.client.base import PooledClient
        client = PooledClient(os.environ["MEMCACHED_URL"])
        client.set("k", "v")
        """,
        """
        for m in range(50):
            client.set(f"k{n}-{m}", f"{m}")
        return [client.get(f"k{n}-{m}") for m in range(50)]
        """,
        server="memcached",
    ),
    case(
        "pymongo",
        "a client without a server",
        """
        from pymongo import MongoClient
        from pymongo.errors import ServerSelectionTimeoutError
        client = MongoClient("127.0.0.1", 1, serverSelectionTimeoutMS=500)
        """,
        """
        try:
            client.admin.command("ping")
        except ServerSelectionTimeoutError as error:
            return type(error).__name__
        """,
    ),
    case(
        "motor",
        "an asynchronous client without a server",
        """
        import asyncio
        from motor.motor_asyncio import AsyncIOMotorClient
        from pymongo.errors import ServerSelectionTimeoutError
        loop = asyncio.new_event_loop()
        client = AsyncIOMotorClient("127.0.0.1", 1, serverSelectionTimeoutMS=500, io_loop=loop)
        async def ask():
            try:
                await client.admin.command("ping")
            except ServerSelectionTimeoutError as error:
                return type(error).__name__
        loop.run_until_complete(ask())
        """,
        "return loop.run_until_complete(ask())",
        in_greenlets=False,
    ),
    case(
        "elasticsearch",
        "a client without a server",
        """
        import elasticsearch
        client = elasticsearch.Elasticsearch("http://127.0.0.1:1", max_retries=0)
        """,
        """
        try:
            client.info()
        except elasticsearch.ConnectionError as error:
            return type(error).__name__
        """,
    ),
    case(
        "neo4j",
        "a driver without a server",
        """
        import neo4j
        from neo4j.exceptions import ServiceUnavailable
        driver = neo4j.GraphDatabase.driver("bolt://127.0.0.1:1", auth=("a", "b"))
        """,
        """
        try:
            driver.verify_connectivity()
        except ServiceUnavailable as error:
            return type(error).__name__
        """,
    ),
    case(
        "influxdb-client",
        "a client that writes in batches, in a thread",
        """
        import os, threading
        from influxdb_client import InfluxDBClient, WriteOptions
        client = InfluxDBClient(os.environ["HTTP_URL"], token="t", org="o")
        written = threading.Event()
        writer = client.write_api(
            WriteOptions(batch_size=1, flush_interval=100), success_callback=lambda *_: written.set()
        )
        """,
        """
        written.clear()
        writer.write("b", "o", f"m v={n}")
        return written.wait(10)
        """,
        server="http",
    ),
    case(
        "fakeredis",
        "a client of a server in memory",
        """
        import fakeredis
        r = fakeredis.FakeRedis()
        r.set("k", "v")
        """,
        """return r.get("k") + str(n).encode()""",
    ),
]
