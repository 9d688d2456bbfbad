"""The rows of the table, in its order, then what fails under load, and the tables of scenarios S3 and S1."""

MODULES = {
    "noop-asgi": "benches.serve.rows.noop_asgi",
    "noop-wsgi": "benches.serve.rows.noop_wsgi",
    "fastapi-async": "benches.serve.rows.fastapi_async",
    "fastapi-sync": "benches.serve.rows.fastapi_sync",
    "cpu-noop-asgi": "benches.serve.rows.cpu.noop_asgi",
    "cpu-fastapi-async": "benches.serve.rows.cpu.fastapi_async",
    "cpu-noop-wsgi": "benches.serve.rows.cpu.noop_wsgi",
    "large": "benches.serve.rows.large",
    "tail": "benches.serve.rows.tail",
    "websocket": "benches.serve.rows.websocket",
    "tcp": "benches.serve.rows.tcp",
    "memory": "benches.serve.rows.memory",
    "life": "benches.serve.rows.life",
    "s3": "benches.serve.rows.s3",
    "grid": "benches.serve.rows.grid",
}
