"""Random numbers: each worker has others."""

from __future__ import annotations

from .case import STANDARD, case

CASES = [
    case(
        "numpy-generator",
        "a generator without a seed",
        """
        import numpy as np
        rng = np.random.default_rng()
        """,
        "return float(rng.random())",
        "numpy",
        is_random=True,
    ),
    case(
        "faker",
        "a generator without a seed",
        """
        from faker import Faker
        fake = Faker()
        """,
        "return fake.name()",
        is_random=True,
    ),
    case(
        "random",
        "a generator without a seed",
        """
        import random
        r = random.Random()
        """,
        "return r.random()",
        STANDARD,
        is_random=True,
    ),
    case(
        "mimesis",
        "a generator without a seed",
        """
        from mimesis import Person
        person = Person()
        person.identifier()
        """,
        """return person.identifier(mask="##########")""",
        is_random=True,
    ),
    case(
        "uuid-utils",
        "an id",
        """
        import uuid_utils
        uuid_utils.uuid4()
        """,
        "return str(uuid_utils.uuid4())",
        is_random=True,
    ),
    case(
        "fastuuid",
        "an id",
        """
        import fastuuid
        fastuuid.uuid4()
        """,
        "return str(fastuuid.uuid4())",
        is_random=True,
    ),
    case(
        "sqlite3-random",
        "a number of a database in memory",
        """
        import sqlite3
        db = sqlite3.connect(":memory:", check_same_thread=False)
        db.execute("select random()").fetchone()
        """,
        """return db.execute("select random()").fetchone()[0]""",
        STANDARD,
        is_random=True,
    ),
    case(
        "numba-random",
        "a compiled function without a seed",
        """
        import random
        from numba import njit
        @njit
        def number():
            return random.random()
        number()
        """,
        "return number()",
        "numba",
        is_random=True,
    ),
    case(
        "duckdb-random",
        "a number of a connection",
        """
        import duckdb
        db = duckdb.connect()
        db.execute("select random()").fetchone()
        """,
        """return db.execute("select random()").fetchone()[0]""",
        "duckdb",
        is_random=True,
    ),
    case(
        "pyarrow-random",
        "a number",
        """
        import pyarrow.compute as pc
        pc.random(1)
        """,
        "return pc.random(1)[0].as_py()",
        "pyarrow",
        is_random=True,
    ),
    case(
        "polars-random",
        "a shuffled column",
        """
        import polars as pl
        column = pl.Series(range(1_000_000))
        column.shuffle()
        """,
        "return column.shuffle()[0]",
        "polars",
        is_random=True,
    ),
    case(
        "bson",
        "an id of an object",
        """
        from bson import ObjectId
        ObjectId()
        """,
        "return str(ObjectId())",
        "pymongo",
        is_random=True,
    ),
    case(
        "rstr",
        "a generator of texts",
        """
        import rstr
        rstr.xeger("[a-z]{20}")
        """,
        """return rstr.xeger("[a-z]{20}")""",
        is_random=True,
    ),
    case(
        "factory-boy",
        "a factory",
        """
        import factory
        class Words(factory.DictFactory):
            text = factory.Faker("sentence", nb_words=20)
        Words()
        """,
        """return Words()["text"]""",
        "factory_boy",
        is_random=True,
    ),
]
