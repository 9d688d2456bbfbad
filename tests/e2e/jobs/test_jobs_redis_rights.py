"""The rights that a store needs on Redis, as its page gives them."""

from __future__ import annotations

import contextlib
import re
import shlex
import socket
from pathlib import Path

import clutch
from support.clutch_process import WAIT_SECONDS
from support.jobs_house import worker
from support.pages import ROOT
from support.redis_server import RedisServer


def test_the_user_of_the_page_runs_jobs(tmp_path: Path) -> None:
    page = (ROOT / "docs/jobs/stores.md").read_text()
    (line,) = re.findall(r"^ *(ACL SETUSER .*)", page, re.MULTILINE)
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    server = RedisServer(tmp_path)
    with contextlib.ExitStack() as ends:
        ends.callback(server.kill)
        server.start("--port", str(port))
        assert server.ask(*shlex.split(line)).strip() == "OK"
        url = f"redis://shop:SECRET@127.0.0.1:{port}"
        with worker(tmp_path, url) as running:
            running.wait_ready("work")
            jobs = clutch.Jobs(url)
            first = jobs.options(result=60, key="ann", unique=True, priority=1, tags=["mail"]).enqueue("double", 2)
            assert jobs.result(first, WAIT_SECONDS) == 4
            second = jobs.options(result=60, in_=0.01, after=first).enqueue("double", 4)
            assert jobs.result(second, WAIT_SECONDS) == 8
            assert jobs.cancel(jobs.options(in_=60).enqueue("double", 1))
            assert {first, second} <= {one.id for one in jobs.list()}
        assert server.ask("ACL", "LOG").strip() == ""
        for command in ("SET other 1", "FLUSHALL", "KEYS *"):
            assert "NOPERM" in server.ask("--user", "shop", "--pass", "SECRET", *command.split()), command
