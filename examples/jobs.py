"""Durable jobs in a SQLite file: retries, unique jobs, progress, and a transaction that takes its job along.

Run: python examples/jobs.py
"""

import sqlite3
import tempfile
from pathlib import Path

import clutch
from shop import orders

CONFIG = """
[pools.shop]
target = "shop.orders"
workers = 2
env = {{ PYTHONPATH = "{code}" }}
[stores.main]
url = "{url}"
[fronts.jobs]
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/jobs.db"
        jobs = clutch.Jobs(url)
        config = Path(folder, "clutch.toml")
        config.write_text(CONFIG.format(url=url, code=Path(__file__).parent))

        first = jobs.enqueue(orders.report, 2026, unique=True)
        again = jobs.enqueue(orders.report, 2026, unique=True)
        print("the same job:", first == again and not again.is_new)

        shaky = jobs.options(result=60).enqueue(orders.charge, "ann", fails=2)
        try:
            jobs.enqueue(orders.charge, "ann", fails="twice")  # pyright: ignore
        except clutch.BadArguments as error:
            print("refused at once:", error)

        connection = sqlite3.connect(f"{folder}/jobs.db")
        connection.execute("CREATE TABLE orders (customer)")
        for customer, is_paid in (("bob", False), ("cleo", True)):
            connection.execute("INSERT INTO orders VALUES (?)", (customer,))
            jobs.enqueue(orders.report, 1, tags=[customer], connection=connection)
            connection.commit() if is_paid else connection.rollback()
        connection.close()
        print("of two transactions one has its job:", [job.tags[0] for job in jobs.list() if job.tags])

        with clutch.Dispatcher(config):
            print("charged:", jobs.result(shaky, timeout=30))
            jobs.result(jobs.options(result=60).enqueue(orders.report, 2), timeout=30)
        told = jobs.get(shaky)
        assert told is not None
        print("after failures:", [error.message for error in told.errors])
        states = {name: getattr(jobs.stats()["default"], name) for name in ("available", "completed", "dead")}
        print("in the store:", states)


if __name__ == "__main__":
    main()
