"""Arrays, frames and what computes with them."""

from __future__ import annotations

from .case import case

CASES = [
    case(
        "numpy",
        "a matrix product",
        """
        import numpy as np
        a = np.arange(40000.0).reshape(200, 200)
        a @ a
        """,
        "return float((a @ a)[n, n])",
    ),
    case(
        "scipy",
        "a decomposition",
        """
        import numpy as np, scipy.linalg as la
        a = np.eye(60) * 3 + 1
        la.svd(a)
        """,
        "return round(float(la.svd(a + n)[1][0]), 6)",
        "scipy",
        "numpy",
    ),
    case(
        "pandas",
        "a frame, grouped",
        """
        import pandas as pd
        frame = pd.DataFrame({"k": [1, 2] * 500, "v": range(1000)})
        frame.groupby("k").sum()
        """,
        """return int(frame.groupby("k").v.sum().iloc[n % 2])""",
    ),
    case(
        "polars",
        "a frame, grouped",
        """
        import polars as pl
        frame = pl.DataFrame({"k": [1, 2] * 500, "v": range(1000)})
        frame.group_by("k").sum()
        """,
        """return int(frame.filter(pl.col("k") == 1 + n % 2)["v"].sum())""",
    ),
    case(
        "polars-imported",
        "only imported",
        "import polars as pl",
        """return int(pl.DataFrame({"v": range(n + 1)})["v"].sum())""",
        "polars",
    ),
    case(
        "pyarrow",
        "a table, sorted",
        """
        import pyarrow as pa, pyarrow.compute as pc
        table = pa.table({"v": list(range(1000))})
        pc.sum(table["v"])
        """,
        """return pc.sum(table["v"]).as_py() + n""",
    ),
    case(
        "pyarrow-dataset",
        "a dataset of Parquet",
        """
        import os, tempfile, pyarrow as pa, pyarrow.parquet as pq
        folder = tempfile.mkdtemp()
        pq.write_table(pa.table({"v": list(range(1000))}), folder + "/a.parquet")
        pq.read_table(folder)
        """,
        """return pq.read_table(folder)["v"][n].as_py()""",
        "pyarrow",
    ),
    case(
        "duckdb",
        "a connection in memory",
        """
        import duckdb
        db = duckdb.connect()
        db.execute("create table t as select * from range(1000)")
        """,
        """return db.cursor().execute("select sum(range) from t").fetchone()[0] + n""",
    ),
    case(
        "numba",
        "a parallel function, compiled",
        """
        import numpy as np
        from numba import njit, prange
        @njit(parallel=True)
        def total(a):
            s = 0.0
            for i in prange(a.size):
                s += a[i]
            return s
        total(np.ones(1000))
        """,
        "return total(np.ones(1000 + n))",
    ),
    case(
        "numexpr",
        "an expression",
        """
        import numpy as np, numexpr as ne
        a = np.arange(1e5)
        ne.evaluate("a * 2")
        """,
        """return float(ne.evaluate("a + 1")[n])""",
    ),
    case(
        "zarr",
        "an array in memory",
        """
        import zarr
        a = zarr.zeros(100)
        a[:] = 7
        """,
        "return float(a[n])",
    ),
    case(
        "blosc2",
        "compressed bytes",
        """
        import blosc2
        packed = blosc2.compress2(b"x" * 100000)
        """,
        "return len(blosc2.decompress2(packed)) + n",
    ),
    case(
        "joblib",
        "a parallel call with threads",
        """
        from joblib import Parallel, delayed
        Parallel(2, backend="threading")(delayed(abs)(n) for n in range(4))
        """,
        """return Parallel(2, backend="threading")(delayed(abs)(-m) for m in range(n))""",
    ),
    case(
        "dask",
        "an array, computed by threads",
        """
        import dask
        import dask.array as da
        x = da.ones((100, 100), chunks=50)
        x.sum().compute()
        """,
        "return float(x.sum().compute()) + n",
        "dask[array]",
    ),
    case(
        "polars-lazy",
        "a lazy frame of a Parquet file, collected as a stream",
        """
        import os, tempfile
        import polars as pl
        path = os.path.join(tempfile.mkdtemp(), "a.parquet")
        pl.DataFrame({"k": [1, 2] * 500, "v": range(1000)}).write_parquet(path)
        lazy = pl.scan_parquet(path)
        lazy.group_by("k").agg(pl.col("v").sum()).collect(engine="streaming")
        """,
        """return lazy.filter(pl.col("v") > n).select(pl.len()).collect(engine="streaming").item()""",
        "polars",
    ),
    case(
        "pyarrow-flight",
        "a Flight server and its client",
        """
        import pyarrow as pa
        import pyarrow.flight as flight
        class Server(flight.FlightServerBase):
            def do_get(self, context, ticket):
                return flight.RecordBatchStream(pa.table({"v": [int(ticket.ticket)]}))
        server = Server("grpc://127.0.0.1:0")
        client = flight.connect(f"grpc://127.0.0.1:{server.port}")
        client.do_get(flight.Ticket(b"1")).read_all()
        """,
        """return client.do_get(flight.Ticket(str(n).encode())).read_all()["v"][0].as_py()""",
        "pyarrow",
    ),
    case(
        "xarray",
        "an array with names",
        """
        import numpy as np, xarray as xr
        a = xr.DataArray(np.arange(12.0).reshape(3, 4), dims=("x", "y"))
        """,
        "return float(a.isel(y=n % 4).sum())",
    ),
    case(
        "datafusion",
        "a context that has run a query",
        """
        from datafusion import SessionContext
        context = SessionContext()
        context.from_pydict({"v": list(range(1000))}, name="t")
        context.sql("select sum(v) from t").collect()
        """,
        """return context.sql(f"select sum(v) + {n} as s from t").to_pydict()["s"][0]""",
    ),
    case(
        "deltalake",
        "a table that was read",
        """
        import tempfile
        import pyarrow as pa
        from deltalake import DeltaTable, write_deltalake
        folder = tempfile.mkdtemp()
        write_deltalake(folder, pa.table({"v": list(range(100))}))
        table = DeltaTable(folder)
        table.to_pyarrow_table()
        """,
        """return table.to_pyarrow_table()["v"][n].as_py()""",
        "deltalake",
        "pyarrow",
    ),
    case(
        "ibis-framework",
        "a connection to DuckDB with a table",
        """
        import ibis
        db = ibis.duckdb.connect()
        table = db.create_table("t", ibis.memtable({"v": list(range(100))}))
        table.count().execute()
        """,
        "return int(table.filter(table.v > n).count().execute())",
        "ibis-framework[duckdb]",
    ),
    case(
        "connectorx",
        "a query of SQLite",
        """
        import os, sqlite3, tempfile
        import connectorx as cx
        path = os.path.join(tempfile.mkdtemp(), "a.db")
        db = sqlite3.connect(path)
        db.execute("create table t (v integer)")
        db.executemany("insert into t values (?)", [(n,) for n in range(10)])
        db.commit()
        db.close()
        def ask(n):
            return cx.read_sql(f"sqlite://{path}", f"select v from t where v = {n}", return_type="arrow")
        ask(1)
        """,
        """return ask(n)["v"][0].as_py()""",
        "connectorx",
        "pyarrow",
        "pandas",
    ),
    case(
        "distributed",
        "a cluster in threads, with its client",
        """
        from distributed import Client
        client = Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None)
        client.submit(abs, -1).result()
        """,
        "return client.submit(abs, -n).result(10)",
        in_greenlets=False,
    ),
    case(
        "tensorstore",
        "an array in files",
        """
        import tempfile
        import tensorstore as ts
        folder = {"driver": "file", "path": tempfile.mkdtemp()}
        store = ts.open({"driver": "zarr", "kvstore": folder}, create=True, dtype=ts.uint8, shape=[100]).result()
        store[:].write(7).result()
        """,
        "return int(store[n].read().result())",
    ),
    case(
        "numpy-npz",
        "an open archive of arrays",
        """
        import os, tempfile
        import numpy as np
        path = os.path.join(tempfile.mkdtemp(), "a.npz")
        np.savez(path, **{f"a{m}": np.full(20000, m) for m in range(6)})
        arrays = np.load(path)
        """,
        """return [int(arrays[f"a{m % 6}"].sum()) for m in range(n, n + 60)]""",
        "numpy",
    ),
    case(
        "numpy-memmap",
        "a mapped file",
        """
        import os, tempfile
        import numpy as np
        a = np.memmap(os.path.join(tempfile.mkdtemp(), "a"), mode="w+", shape=100, dtype="int64")
        a[:] = range(100)
        """,
        "return int(a[n])",
        "numpy",
    ),
]
