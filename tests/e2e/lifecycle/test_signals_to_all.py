"""A signal to every process of a service, as systemd, Heroku, `timeout` and `kill -- -PGID` send it, is one stop."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import clutch
from clutch.testing import Processes
from support.clutch_process import Dispatcher, answer
from support.jobs_house import worker
from support.rendezvous import Rendezvous
from support.serve_process import ANY_PORT, Serving


def from_the_leaves(process: Dispatcher) -> None:
    """Workers hear it long before their dispatcher: the worst order."""
    with process.below() as below:
        below.send(signal.SIGTERM)
    process.terminate()


def from_the_root(process: Dispatcher) -> None:
    with process.below() as below:
        process.terminate()
        below.send(signal.SIGTERM)


def doubled(process: Dispatcher) -> None:
    """`timeout` sends it to its child, and then to its group; a container's first process may pass it on as well."""
    from_the_leaves(process)
    process.err.wait("SIGTERM: stopping")
    from_the_root(process)


@pytest.mark.parametrize("send", [from_the_leaves, from_the_root, doubled])
@pytest.mark.parametrize("app", ["web:app", "web:meets"], ids=["asgi", "wsgi"])
def test_requests_that_run_are_answered(
    tmp_path: Path, rendezvous: Rendezvous, send: Callable[[Dispatcher], None], app: str
) -> None:
    shape = ["-w", "2", "--threads", "2"] if app == "web:meets" else ["-w", "2"]
    with Serving(tmp_path, app, *shape, "-b", ANY_PORT) as serving:
        serving.wait_ready("web")
        asked = [serving.asking(f"/meet?port={rendezvous.port}") for _ in range(4)]
        running = [one.__enter__() for one in asked]
        with serving.below() as processes:
            guests = rendezvous.guests(4)
            send(serving)
            serving.err.wait("SIGTERM: stopping")
            for guest in guests:
                guest.let_go()
            assert [answer(one).status for one in running] == [200] * 4
            assert serving.wait() == 0
            processes.wait_ended()
        for one in asked:
            one.__exit__(None, None, None)
        assert "again" not in serving.err.text


@pytest.mark.parametrize("grace", ["30s", "300ms"])
def test_a_job_ends_or_is_put_back(tmp_path: Path, rendezvous: Rendezvous, grace: str) -> None:
    jobs = clutch.Jobs(f"sqlite:///{tmp_path}/jobs.db")
    with worker(tmp_path, jobs.url, "--grace", grace) as server:
        server.wait_ready("work")
        job = jobs.options(retry=0).enqueue("wait_at", rendezvous.port)
        guest = rendezvous.guest()
        from_the_leaves(server)
        server.err.wait("SIGTERM: stopping")
        if grace == "30s":
            guest.let_go()
        assert server.wait() == 0
    found = jobs.get(job)
    assert found is not None
    assert (found.state, found.attempt) == (("available", 0) if grace != "30s" else ("completed", 1))


PROGRAM = """
import os, signal, sys, time
from clutch import Pool

def end(*_):
    raise SystemExit(0)

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end)
    with Pool("http_tools", workers=2) as pool:
        pool.wait_ready(timeout=60)
        future = pool.submit("meet", int(sys.argv[1]))
        try:
            print("runs", flush=True)
            time.sleep(3600)
        finally:
            print("stops", flush=True)
            print(future.result(60), flush=True)
    print("over", flush=True)
"""


def test_the_pool_of_a_program_ends_in_order(tmp_path: Path, rendezvous: Rendezvous) -> None:
    (tmp_path / "main.py").write_text(PROGRAM)
    with Dispatcher(tmp_path, [sys.executable, "main.py", str(rendezvous.port)]) as program:
        guest = rendezvous.guest()
        program.out.wait("runs")
        with program.below() as below:
            os.kill(program.process.pid, signal.SIGTERM)
            below.send(signal.SIGTERM)
            program.out.wait("stops")
            guest.let_go("done")
            assert program.wait() == 0
            below.wait_ended()
    assert program.out.text.split() == ["runs", "stops", "done"]


def test_a_worker_that_is_sent_term_alone_is_replaced(tmp_path: Path, rendezvous: Rendezvous) -> None:
    with Serving(tmp_path, "web:app", "-w", "1", "-b", ANY_PORT) as serving:
        serving.wait_ready("web")
        with serving.asking(f"/meet?port={rendezvous.port}") as running:
            guest = rendezvous.guest()
            with Processes([guest.pid]) as worker_of_request:
                worker_of_request.send(signal.SIGTERM)
                serving.err.wait(
                    rf"worker web/0 \(pid {guest.pid}\): takes no more work: another process sent it SIGTERM"
                )
                assert serving.get().json["pid"] != guest.pid
                guest.let_go()
                assert answer(running).status == 200
                worker_of_request.wait_ended()
        serving.terminate()
        assert serving.wait() == 0
