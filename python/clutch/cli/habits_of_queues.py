"""Options and commands of other job queues, typed by habit at `clutch work` and `clutch jobs`: what to write here.

Tables alone; `habits` looks things up in them. No row takes an option or a command away.
"""

from __future__ import annotations

from collections.abc import Mapping

from clutch.cli import celery_line
from clutch.cli.habits import LEFT_OUT, Habit

STORE = "write --store TEXT, if it is the URL of SQLite, Redis or Valkey"
TARGET = "name the module of the tools as TARGET: clutch work TEXT"
LEVEL = "write --log-level LEVEL"
WORKERS = "write --workers N; for jobs that wait more than they compute: --profile thread --threads N"
GRACE = "write --grace TIME"
LOG_FILE = "the log is on standard error: write 2>> FILE"
BURST = (
    f"{LEFT_OUT}: `clutch work` waits for more jobs until it is stopped; in tests, clutch.testing.drain(jobs) runs all "
    "that wait"
)
NOTIFIED = f"{LEFT_OUT}: a new job is noticed at once"
CONCURRENT = "write --profile async --tasks N"
PERIODIC = (
    f"{LEFT_OUT}: every `clutch work` runs the schedules of its store, and `clutch run` those of [cron.NAME] "
    "(docs/jobs/periodic.md)"
)
QUEUES = "write --queues TEXT"
WEB = "use `clutch top`, or metrics with --admin 127.0.0.1:9180"
MODULES = "name the modules of the tools as TARGETs: clutch work shop.mail shop.images"

OF_WORK = (
    *celery_line.rows(),
    Habit(("-A", "--app"), "Celery, procrastinate", TARGET),
    Habit(("-c", "--concurrency"), "Celery, procrastinate", WORKERS),
    Habit(("-c",), "Sidekiq", "write --profile thread --threads N"),
    Habit(("-Q",), "dramatiq", QUEUES),
    Habit(("-q",), "Sidekiq, procrastinate", "write all in one option: --queues critical:3,default:1"),
    Habit(("-q", "--quiet"), "RQ, huey, saq", "write --log-level warning"),
    Habit(("--queue", "--queue-name"), "RQ, django-tasks", QUEUES),
    Habit(("--logging-level", "--logging_level"), "RQ", LEVEL),
    Habit(("-v", "--verbose"), "other job queues", "write --log-level debug"),
    Habit(("--log-file",), "huey, dramatiq", LOG_FILE),
    Habit(("-l",), "huey", LOG_FILE),
    Habit(
        ("-P", "--pool"),
        "Celery",
        "write --profile process, thread, async or greenlet (its prefork, threads, -, gevent)",
    ),
    Habit(("-P", "--path"), "RQ, dramatiq", "write --env PYTHONPATH=TEXT, or run it in that folder"),
    Habit(("-k", "--worker-type"), "huey", "write --profile process, thread or greenlet"),
    Habit(("--with-scheduler", "-n", "--no-periodic"), "RQ, huey", PERIODIC),
    Habit(("-s", "--scheduler-interval"), "huey", PERIODIC),
    Habit(("--name", "--worker-id"), "RQ", f"{LEFT_OUT}: nothing needs a name"),
    Habit(
        ("--max-jobs", "--max-tasks"), "RQ, django-tasks", "write --recycle-calls N, after which a worker is replaced"
    ),
    Habit(("--max-prefetch",), "taskiq", f"{LEFT_OUT}: nothing is claimed that cannot begin"),
    Habit(("-fsd", "--fs-discover", "--tasks-pattern"), "taskiq", MODULES),
    Habit(("-u", "--url"), "RQ", STORE),
    Habit(("-b", "--burst"), "RQ, arq", BURST),
    Habit(("--batch", "--one-shot", "--max-burst-jobs", "--max-idle-time"), "other job queues", BURST),
    Habit(("--worker-class", "--job-class", "--queue-class", "--serializer"), "RQ", LEFT_OUT),
    Habit(("--results-ttl", "--worker-ttl", "--job-monitoring-interval"), "RQ", f"{LEFT_OUT}: see result= and --lease"),
    Habit(("--dequeue-strategy",), "RQ", "write --queues critical:3,default:1, or --strict"),
    Habit(("--sentry-dsn",), "RQ", "start it in @clutch.on_start (docs/tracing.md)"),
    Habit(
        ("-t", "--timeout", "--shutdown-timeout", "--shutdown-grace-period-s", "--shutdown-graceful-timeout"),
        "other job queues",
        GRACE,
    ),
    Habit(("--worker-shutdown-timeout",), "dramatiq", "write --grace 60s: a time with its unit"),
    Habit(("-t",), "dramatiq", "write --profile thread --threads N"),
    Habit(("-p", "--processes"), "dramatiq", "write --workers N"),
    Habit(("--watch",), "dramatiq, arq", "write --reload"),
    Habit(("--use-spawn",), "dramatiq", "write --start spawn"),
    Habit(("-C", "--config"), "Sidekiq", "use `clutch run FILE`, with a clutch.toml"),
    Habit(("-r", "--require"), "Sidekiq", TARGET),
    Habit(("-e", "--environment"), "Sidekiq", "write --env NAME=TEXT"),
    Habit(
        ("-d", "--delay", "-m", "--max-delay", "--backoff", "--interval", "--wait"), "huey, other job queues", NOTIFIED
    ),
    Habit(("-C", "--health-check-interval", "--disable-health-check"), "huey", LEFT_OUT),
    Habit(("-S", "--simple", "--simple-log"), "huey", LEFT_OUT),
    Habit(("--check",), "arq", "use `clutch ps`, or --admin 127.0.0.1:9180 and /readyz"),
    Habit(("--web", "--port"), "saq", WEB),
    Habit(("--max-async-tasks",), "taskiq", CONCURRENT),
    Habit(("--use-process-pool",), "taskiq", "write --profile process"),
    Habit(("--max-threadpool-threads",), "taskiq", "write --profile thread --threads N"),
    Habit(("--settings",), "Django", "write --django TEXT"),
    Habit(
        ("--pidfile", "--pid-file"),
        "other job queues",
        f"{LEFT_OUT}: `clutch stop` and `clutch ps` find it by its folder",
    ),
)

OF_JOBS = (
    Habit(("--status",), "other job queues", "write --state TEXT"),
    Habit(("--failed",), "RQ", "write --state dead, or use `clutch jobs dead`"),
    Habit(("-q", "-Q", "--queue-name"), "other job queues", "write --queue TEXT"),
    Habit(("-n", "-l", "--count", "--max"), "other job queues", "write --limit N"),
    Habit(("-u", "--url", "-b", "--broker"), "RQ, Celery", STORE),
    Habit(("-A", "--app"), "Celery", "leave it out: only the store is asked, --store URL"),
    Habit(("-f", "-y", "--force", "--no-input", "--noinput"), "other job queues", "write --yes"),
    Habit(("-a",), "RQ", "write --all"),
    Habit(("-a", "--kwargs", "-k"), "Celery", "write --args 'TEXT'"),
    Habit(("--countdown", "--delay", "--eta"), "Celery", "write --in TIME"),
    Habit(("--max-retries",), "other job queues", "write --retry N"),
    Habit(
        ("--set",),
        "clutch work",
        "what that process was given is in its log; for entries that others see, write [cron.NAME] into a config, or "
        "use jobs.schedule(…)",
    ),
    Habit(tuple(f"-{digit}" for digit in range(10)), "a negative number", "write -- before values that begin with -"),
)

COMMANDS: Mapping[str, str] = {
    "top": "top",
    "web": "top",
    "monitor": "top",
    "flower": "top",
    "dashboard": "top",
    "ps": "ps, or jobs list --state running",
    "workers": "ps",
    "worker": "work MODULE",
    "work": "work MODULE",
    "drain": "drain",
    "inspect": "jobs list --state running",
    "active": "jobs list --state running",
    "running": "jobs list --state running",
    "reserved": "jobs list --state available",
    "pending": "jobs list --state available",
    "scheduled": "jobs list --state scheduled",
    "failed": "jobs dead",
    "ls": "jobs list",
    "get": "jobs show ID",
    "result": "jobs show ID",
    "info": "jobs stats",
    "status": "jobs stats",
    "queues": "jobs stats",
    "count": "jobs stats",
    "requeue": "jobs retry",
    "rerun": "jobs retry",
    "revoke": "jobs cancel",
    "discard": "jobs cancel",
    "kill": "jobs cancel",
    "stop": "jobs cancel",
    "purge": "jobs delete --queue NAME, or --all",
    "empty": "jobs delete --queue NAME, or --all",
    "clear": "jobs delete --queue NAME, or --all",
    "flush": "jobs delete --queue NAME, or --all",
    "rm": "jobs delete",
    "remove": "jobs delete",
    "suspend": "jobs pause",
    "unpause": "jobs resume",
    "rate": "jobs limit QUEUE --rate 10/m",
    "call": "jobs enqueue",
    "run": "jobs enqueue",
    "send": "jobs enqueue",
    "push": "jobs enqueue",
    "add": "jobs enqueue",
    "beat": "jobs cron",
    "schedule": "jobs cron",
    "schedules": "jobs cron",
    "scheduler": "jobs cron",
    "periodic": "jobs cron",
}
"""Commands of others, and ours for the same purpose."""
