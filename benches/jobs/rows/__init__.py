"""The rows of the table, in its order; each module has one function `run(scale) -> Report`."""

MODULES = {
    "drain": "benches.jobs.rows.drain",
    "commands": "benches.jobs.rows.commands",
    "enqueue": "benches.jobs.rows.enqueue",
    "enqueue_many": "benches.jobs.rows.enqueue_many",
    "sqlite": "benches.jobs.rows.sqlite",
    "sweep": "benches.jobs.rows.sweep",
    "latency": "benches.jobs.rows.latency",
    "growth": "benches.jobs.rows.growth",
    "memory": "benches.jobs.rows.memory",
}
