"""The rows of the table, in its order; each module has one function `run(scale) -> Report`."""

MODULES = {
    "echo": "benches.rows.echo",
    "submit": "benches.rows.submit",
    "map": "benches.rows.mapping",
    "asyncio": "benches.rows.from_asyncio",
    "payload": "benches.rows.payload",
    "http": "benches.rows.over_http",
    "start": "benches.rows.start",
    "thread": "benches.rows.threads",
    "deadline": "benches.rows.deadlines",
    "backlog": "benches.rows.backlog",
    "recycle": "benches.rows.recycling",
    "replacement": "benches.rows.replacement",
    "scale-start": "benches.rows.scale.start",
    "scale-calls": "benches.rows.scale.calls",
    "scale-slots": "benches.rows.scale.slots",
    "scale-arrays": "benches.rows.scale.arrays",
    "scale-queue": "benches.rows.scale.queue",
    "scale-deadlines": "benches.rows.scale.deadlines",
}
