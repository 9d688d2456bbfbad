"""Logs, metrics, traces, and what runs beside a program."""

from __future__ import annotations

from .case import STANDARD, case

CASES = [
    case(
        "apscheduler",
        "a scheduler that runs",
        """
        from apscheduler.schedulers.background import BackgroundScheduler
        s = BackgroundScheduler()
        s.add_job(print, "interval", hours=1)
        s.start()
        """,
        "return len(s.get_jobs())",
    ),
    case(
        "watchdog",
        "an observer that runs",
        """
        import tempfile
        from watchdog.observers import Observer
        o = Observer()
        o.start()
        """,
        "return o.is_alive()",
    ),
    case(
        "loguru",
        "a sink in a thread",
        """
        import os, tempfile
        from loguru import logger
        logger.remove()
        path = tempfile.mktemp()
        logger.add(path, enqueue=True)
        logger.info("first")
        """,
        """
        logger.info("{}", n)
        logger.complete()
        return True
        """,
    ),
    case(
        "queue-listener",
        "a listener that runs",
        """
        import logging, logging.handlers, queue
        q = queue.Queue()
        seen = []
        handler = logging.Handler()
        handler.emit = seen.append
        listener = logging.handlers.QueueListener(q, handler)
        listener.start()
        log = logging.getLogger("a")
        log.addHandler(logging.handlers.QueueHandler(q))
        """,
        """
        import time
        log.warning("x", extra={"call": n})
        until = time.monotonic() + 5
        while not any(one.call == n for one in seen) and time.monotonic() < until:
            time.sleep(0.01)
        return sum(one.call == n for one in seen)
        """,
        STANDARD,
    ),
    case(
        "sentry-sdk",
        "a client without a server",
        """
        import sentry_sdk
        sentry_sdk.init(dsn="http://a@127.0.0.1:1/1")
        """,
        "return sentry_sdk.is_initialized() and n",
    ),
    case(
        "opentelemetry",
        "a tracer with a batch of spans",
        """
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
        out = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(BatchSpanProcessor(out))
        trace.set_tracer_provider(provider)
        """,
        """
        with trace.get_tracer("a").start_as_current_span("s") as span:
            own = span.get_span_context().trace_id
        provider.force_flush(5000)
        return sum(one.context.trace_id == own for one in out.get_finished_spans())
        """,
        "opentelemetry-sdk",
    ),
    case(
        "prometheus-client",
        "a counter",
        """
        from prometheus_client import Counter, generate_latest
        c = Counter("c", "c")
        c.inc()
        """,
        """return b"c_total" in generate_latest()""",
    ),
    case(
        "prometheus-server",
        "an exporter that listens",
        """
        from prometheus_client import start_http_server
        server, thread = start_http_server(0, addr="127.0.0.1")
        """,
        """
        import urllib.request
        return urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/").status
        """,
        "prometheus-client",
    ),
    case(
        "structlog",
        "a logger",
        """
        import structlog
        log = structlog.get_logger()
        """,
        "return callable(log.bind(n=n).info)",
    ),
    case(
        "tqdm",
        "a bar",
        """
        from tqdm import tqdm
        bar = tqdm(total=10, disable=True)
        """,
        """
        bar.update(1)
        return n
        """,
    ),
    case(
        "ddtrace",
        "a tracer without an agent",
        """
        import os
        os.environ.update(
            DD_TRACE_AGENT_URL="http://127.0.0.1:1",
            DD_INSTRUMENTATION_TELEMETRY_ENABLED="false",
            DD_REMOTE_CONFIGURATION_ENABLED="false",
        )
        import logging
        logging.getLogger("ddtrace").setLevel("CRITICAL")
        from ddtrace.trace import tracer
        with tracer.trace("first"):
            pass
        """,
        """
        with tracer.trace("other") as span:
            return span.name + str(n)
        """,
    ),
    case(
        "newrelic",
        "an agent that sends nothing",
        """
        import os
        os.environ.update(NEW_RELIC_DEVELOPER_MODE="true", NEW_RELIC_APP_NAME="a", NEW_RELIC_LOG_LEVEL="critical")
        import newrelic.agent
        newrelic.agent.initialize()
        app = newrelic.agent.register_application(timeout=5)
        with newrelic.agent.BackgroundTask(app, "first"):
            pass
        """,
        """
        with newrelic.agent.BackgroundTask(app, "other"):
            return newrelic.agent.current_transaction().name, n
        """,
    ),
    case(
        "datadog",
        "a client of statsd",
        """
        import socket
        from datadog.dogstatsd import DogStatsd
        inbox = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        inbox.bind(("127.0.0.1", 0))
        inbox.settimeout(5)
        statsd = DogStatsd("127.0.0.1", inbox.getsockname()[1], disable_telemetry=True, flush_interval=0.1)
        statsd.increment("first")
        inbox.recv(1000)
        """,
        """
        statsd.increment(f"m{n}")
        return inbox.recv(1000).partition(b":")[0]
        """,
    ),
    case(
        "statsd",
        "a client",
        """
        from statsd import StatsClient
        client = StatsClient("127.0.0.1", 8125)
        client.incr("first")
        """,
        """return client.incr(f"m{n}")""",
    ),
    case(
        "opentelemetry-metrics",
        "a meter that is read every minute",
        """
        import io
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader
        out = io.StringIO()
        provider = MeterProvider([PeriodicExportingMetricReader(ConsoleMetricExporter(out))])
        counter = provider.get_meter("a").create_counter("c")
        counter.add(1)
        """,
        """
        counter.add(1)
        return provider.force_flush(5000) and bool(out.getvalue())
        """,
        "opentelemetry-sdk",
    ),
    case(
        "prometheus-multiprocess",
        "a counter in a file of the process",
        """
        import os, tempfile
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = tempfile.mkdtemp()
        from prometheus_client import CollectorRegistry, Counter, generate_latest
        from prometheus_client.multiprocess import MultiProcessCollector
        counter = Counter("c", "c")
        counter.inc()
        """,
        """
        counter.inc()
        registry = CollectorRegistry()
        MultiProcessCollector(registry)
        return b"c_total" in generate_latest(registry)
        """,
        "prometheus-client",
    ),
    case(
        "rich",
        "a bar that a thread draws",
        """
        import io
        from rich.console import Console
        from rich.progress import Progress
        progress = Progress(console=Console(file=io.StringIO(), force_terminal=True))
        task = progress.add_task("a", total=100)
        progress.start()
        """,
        """
        progress.advance(task)
        progress.refresh()
        return progress.tasks[0].total
        """,
    ),
    case(
        "logging-file",
        "a log in a file",
        """
        import logging.handlers, os, tempfile
        path = os.path.join(tempfile.mkdtemp(), "log")
        log = logging.getLogger("a")
        log.addHandler(logging.handlers.RotatingFileHandler(path, maxBytes=10000, backupCount=2))
        log.warning("first")
        """,
        """
        for m in range(100):
            log.warning("%s", m)
        return sum(os.path.getsize(f"{path}{end}") for end in ("", ".1", ".2") if os.path.exists(path + end)) > 0
        """,
        STANDARD,
    ),
    case(
        "python-logstash-async",
        "a handler with a thread",
        """
        import logging, socket
        from logstash_async.constants import constants
        from logstash_async.handler import AsynchronousLogstashHandler
        from logstash_async.transport import UdpTransport
        constants.QUEUED_EVENTS_FLUSH_INTERVAL = 0.1
        inbox = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        inbox.bind(("127.0.0.1", 0))
        inbox.settimeout(5)
        way = UdpTransport("127.0.0.1", inbox.getsockname()[1], timeout=5, ssl_enable=False, ssl_verify=False,
                           keyfile=None, certfile=None, ca_certs=None)
        log = logging.getLogger("a")
        log.addHandler(AsynchronousLogstashHandler("", 0, database_path=None, transport=way))
        log.warning("first")
        inbox.recv(10000)
        """,
        """
        log.warning(f"<{n}>")
        return f"<{n}>".encode() in inbox.recv(10000)
        """,
    ),
    case(
        "elastic-apm",
        "a client without a server",
        """
        import logging
        import elasticapm
        logging.getLogger("elasticapm").setLevel("CRITICAL")
        client = elasticapm.Client(
            service_name="a", server_url="http://127.0.0.1:1", central_config=False, cloud_provider="none"
        )
        client.begin_transaction("first")
        client.end_transaction("first")
        """,
        """
        client.begin_transaction("other")
        return client.end_transaction(f"t{n}").name
        """,
    ),
    case(
        "rollbar",
        "a client with a pool of threads",
        """
        import os
        import rollbar
        rollbar.init("t", "test", endpoint=os.environ["HTTP_URL"] + "/", handler="thread_pool")
        rollbar.report_message("first")
        """,
        "return bool(rollbar.report_message(str(n)))",
        server="http",
    ),
    case(
        "bugsnag",
        "a client with a queue",
        """
        import os
        import bugsnag
        url = os.environ["HTTP_URL"]
        bugsnag.configure(api_key="0" * 32, endpoint=url, session_endpoint=url, auto_capture_sessions=False)
        bugsnag.notify(ValueError("first"))
        """,
        "return bugsnag.notify(ValueError(n))",
        server="http",
    ),
    case(
        "logfire",
        "a client that sends nothing",
        """
        import logfire
        logfire.configure(send_to_logfire=False, console=False, inspect_arguments=False)
        logfire.info("first")
        """,
        """
        with logfire.span("other", n=n) as span:
            return span.is_recording()
        """,
    ),
    case(
        "pyinstrument",
        "a profiler that runs",
        """
        import pyinstrument
        profiler = pyinstrument.Profiler()
        profiler.start()
        """,
        """
        import time
        until = time.monotonic() + 0.05
        while time.monotonic() < until:
            pass
        return profiler.is_running
        """,
    ),
    case(
        "coverage",
        "a measurement that runs",
        """
        import os, tempfile
        import coverage
        measured = coverage.Coverage(data_file=os.path.join(tempfile.mkdtemp(), "a"))
        measured.start()
        """,
        "return coverage.Coverage.current() is measured",
    ),
    case(
        "watchfiles",
        "a watch of a folder in a thread",
        """
        import os, tempfile, threading, time
        from watchfiles import watch
        folder, changed = tempfile.mkdtemp(), threading.Event()
        def follow():
            for _ in watch(folder, debounce=50):
                changed.set()
        threading.Thread(target=follow, daemon=True).start()
        until = time.monotonic() + 10
        while not changed.wait(0.1) and time.monotonic() < until:
            open(os.path.join(folder, "first"), "w").close()
        """,
        """
        time.sleep(0.2)
        changed.clear()
        with open(os.path.join(folder, f"{n}-{os.getpid()}"), "w") as file:
            file.write("x")
        return changed.wait(5)
        """,
    ),
    case(
        "psutil",
        "the process itself",
        """
        import os
        import psutil
        process = psutil.Process()
        """,
        "return process.pid == os.getpid()",
        answered="`psutil.Process()` is the process that has made it, here the one that imports the target",
    ),
    case(
        "schedule",
        "a schedule that a thread runs",
        """
        import threading, time
        import schedule
        ran = threading.Event()
        schedule.every(0.1).seconds.do(ran.set)
        def follow():
            while True:
                schedule.run_pending()
                time.sleep(0.05)
        threading.Thread(target=follow, daemon=True).start()
        """,
        """
        ran.clear()
        return ran.wait(5)
        """,
    ),
]
